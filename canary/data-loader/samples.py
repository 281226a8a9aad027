"""Provide samples whose bytes follow from random bytes of this run and the sample's number."""

import os
from collections import namedtuple

import torch
from torch.utils import data

Size = namedtuple("Size", "side batch workers epoch")
SIZES = {"cuda": Size(224, 64, 4, 2048), "cpu": Size(16, 4, 2, 24)}
"""Side of an image, images of a batch, workers, and samples of an epoch."""
_STRIDE = 4099


class Images(data.Dataset):
    """Images as a decoder leaves them, normalised by whoever asks for one.

    Args:
        size: of `SIZES`.
        count: number of samples; they begin again after an epoch.
    """

    def __init__(self, size, count=None):
        self._size, self._count = size, count or size.epoch
        self._each = 3 * size.side**2
        raw = bytearray(os.urandom(self._each + 251 * _STRIDE))  # no image knows them
        self._line = torch.frombuffer(raw, dtype=torch.uint8)

    def __len__(self):
        """Return the number of samples."""
        return self._count

    def __getitem__(self, number):
        """Return a sample: image, number, and the worker that made it."""
        worker = data.get_worker_info()
        return self.image(number), number, -1 if worker is None else worker.id

    def image(self, number):
        """Return the normalised image of a sample."""
        start = number % self._size.epoch % 251 * _STRIDE
        side = self._size.side
        raw = self._line[start : start + self._each].reshape(3, side, side)
        # Exact in fp32, so that bits can be compared.
        return (raw.float() - 128.0) / 64.0 + number % self._size.epoch


def loader(images, size, device):
    """Return a loader with workers, and page-locked memory where there is a GPU."""
    torch.set_num_threads(1)  # workers inherit it, as they would set it
    return data.DataLoader(
        images,
        batch_size=size.batch,
        num_workers=size.workers,
        pin_memory=device.type == "cuda",
        prefetch_factor=4,
        multiprocessing_context="fork",
    )
