"""Ways to load a file of weights: around the page cache, and by mapping it."""

import ctypes
import mmap
import os
import warnings

import storage
import torch

BLOCK = 16 << 20
_PAGE = 4096


class Direct:
    """Read blocks into page-locked memory around the page cache, and copy them from there.

    Two blocks take turns: one is read while the other one is copied.

    Args:
        file: of `weights.write`.
        device: to load to.
    """

    def __init__(self, file, device):
        self._file = file
        self._on_gpu = device.type == "cuda"
        self._blocks = [_aligned(BLOCK, self._on_gpu) for _ in range(2)]
        self._target = torch.empty(file.size, dtype=torch.uint8, device=device)

    def read(self):
        """Read the tensors' bytes into memory of the host, and no further."""
        for _ in self._pieces():
            pass

    def load(self):
        """Load all tensors.

        Returns:
            Name to tensor of bytes.
        """
        copied = [None, None]
        for number, (start, block) in enumerate(self._pieces(copied)):
            self._target[start : start + block.numel()].copy_(block, non_blocking=True)
            if self._on_gpu:
                copied[number % 2] = torch.cuda.Event()
                copied[number % 2].record()
        if self._on_gpu:
            torch.cuda.synchronize()
        each = self._file.each
        return {
            name: self._target[number * each : (number + 1) * each]
            for number, name in enumerate(self._file.names)
        }

    def _pieces(self, copied=(None, None)):
        """Yield places and blocks; a block is read again once its copy is done."""
        number, _ = storage.open_direct(self._file.path)
        try:
            for turn, start in enumerate(range(0, self._file.size, BLOCK)):
                if copied[turn % 2] is not None:
                    copied[turn % 2].synchronize()
                block = self._blocks[turn % 2][: min(BLOCK, self._file.size - start)]
                _fill(number, self._file.start + start, block)
                yield start, block
        finally:
            os.close(number)


class Mapped:
    """Map the file and copy tensor by tensor, as safetensors does.

    Args:
        file: of `weights.write`.
        device: to load to.
    """

    def __init__(self, file, device):
        self._file, self._device = file, device

    def load(self):
        """Load all tensors.

        Returns:
            Name to tensor of bytes.
        """
        file, found = self._file, {}
        with open(file.path, "rb") as opened:
            view = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch says that nobody may write to the tensor
            whole = torch.frombuffer(view, dtype=torch.uint8, offset=file.start)
        for number, name in enumerate(file.names):
            part = whole[number * file.each : (number + 1) * file.each]
            found[name] = part.to(self._device, copy=True)
        return found


def _aligned(size, pinned):
    """Return memory that begins with a page, as reading around the page cache requires."""
    memory = torch.empty(size + _PAGE, dtype=torch.uint8, pin_memory=pinned)
    return memory[-memory.data_ptr() % _PAGE :][:size]


def _fill(number, start, block):
    """Read from a place of the file until the block is full."""
    memory = (ctypes.c_char * block.numel()).from_address(block.data_ptr())
    view, done = memoryview(memory), 0
    while done < len(view):
        count = os.preadv(number, [view[done:]], start + done)
        if not count:
            raise EOFError(f"the file of weights ends after {start + done} bytes")
        done += count
