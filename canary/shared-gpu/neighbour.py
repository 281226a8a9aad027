"""Keep a GPU busy from a process of its own, and check what it computes."""

import multiprocessing
import os
import sys

import canary_models as models
import canary_numerics as numerics
import torch

SIDES, AT_ONCE = {"cuda": 2048, "cpu": 64}, {"cuda": 16, "cpu": 1}
"""Side of a product, and products that are queued before the process waits."""
_PERIOD = 4099
_PATIENCE_S = 180


class Neighbour:
    """Process that multiplies matrices until the block ends.

    Attributes:
        share: largest difference of a row as a share of its bound; known after the block.

    Args:
        device: ``cuda`` or ``cpu``.
        uuid: of the MIG slice to use; None for the device of this process.
    """

    def __init__(self, device, uuid=None):
        # A fork is quick, but cannot use CUDA again.
        context = multiprocessing.get_context("fork" if device == "cpu" else "spawn")
        self._count, self._share = context.Value("q", 0), context.Value("d", -1.0)
        self._ready, self._stop = context.Event(), context.Event()
        nonce = int.from_bytes(os.urandom(6), "little")  # results follow from it
        shared = self._count, self._share, self._ready, self._stop
        self._process = context.Process(
            target=work, args=(device, uuid, nonce, *shared), daemon=True
        )
        self.share = float("inf")

    def __enter__(self):
        """Start the process and wait until it computes; ends the program where it does not."""
        self._process.start()
        for _ in range(_PATIENCE_S * 10):
            if self._ready.wait(0.1):
                return self
            if self._process.exitcode is not None:
                break
        self._process.kill()
        sys.exit("shared-gpu: the neighbour does not start")

    def __exit__(self, *_):
        """Let the process check a product and end."""
        self._stop.set()
        self._process.join(_PATIENCE_S)
        if self._process.exitcode == 0:
            self.share = self._share.value
        elif self._process.exitcode is None:
            self._process.kill()

    def products(self):
        """Return the number of products so far."""
        return self._count.value


def work(device, uuid, nonce, count, share, ready, stop):
    """Multiply until told to stop, then check the last product; runs in the other process."""
    if uuid:
        os.environ["CUDA_VISIBLE_DEVICES"] = uuid  # read when CUDA starts
    if device == "cpu":
        torch.set_num_threads(1)  # threads do not survive a fork
    place = torch.device(device)
    side, at_once = SIDES[device], AT_ONCE[device]
    a, b = (_matrix(nonce, name, side).half().to(place) for name in "ab")
    product = torch.empty_like(a)
    while not stop.is_set():
        for _ in range(at_once):
            torch.matmul(a, b, out=product)
        if device == "cuda":
            torch.cuda.synchronize()
        count.value += at_once
        ready.set()
    signs = models.numbers(nonce, "signs", (side, numerics.VECTORS))
    signs = (signs >= 0).double().mul(2).sub(1).to(place)
    share.value = numerics.whole_product(a, b, product, signs, output="fp16", cuts=True)


def _matrix(nonce, name, side):
    """Return numbers in -1..1 of a nonce: a line of digests, tiled; no row repeats another."""
    line = models.numbers(nonce, f"neighbour {name}", (_PERIOD,))
    return line.repeat(side * side // _PERIOD + 1)[: side * side].reshape(side, side)
