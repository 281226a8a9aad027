"""Run one rank: a process with one GPU that multiplies and reduces. Python 3.8 or newer."""

import canary_models as models
import canary_numerics as numerics
import canary_ranks as ranks
import torch
from torch import distributed

SIDES, PRODUCTS = {"cuda": 4096, "cpu": 64}, {"cuda": 8, "cpu": 2}
ELEMENTS = {"cuda": 64 << 20, "cpu": 1 << 12}
"""Numbers of fp32 that are reduced."""
ROUNDS = 5
_LARGEST = 1021
_PERIOD = 4099


def work(number, count, nonce, options, folder):
    """Check results of overlapped work, then time; return the report.

    Args:
        number: of this rank.
        count: number of ranks.
        nonce: number that results follow from.
        options: of `canary_program`.
        folder: that all ranks see.
    """
    group = ranks.Group(options, number, count, f"file://{folder}/meeting", number)
    here = Rank(group, nonce)
    wrong, share = here.check()
    calls = {"compute": here.compute, "communication": here.reduce, "together": here.together}
    times = {name: group.times(call) for name, call in calls.items()}
    share = max(share, here.share())  # of the product that was timed last
    again, later = here.check()
    wrong, share = wrong + again, max(share, later)
    group.leave()
    return {"wrong": wrong, "sums": 2 * ROUNDS * here.elements, "share": share, "times": times}


class Rank:
    """Work of one rank, in the same order on all ranks.

    Attributes:
        elements: count of numbers that are reduced.
    """

    def __init__(self, group, nonce):
        self._group, device = group, group.device
        self.elements = ELEMENTS[device.type]
        side, half = SIDES[device.type], models.reduced_precision(device)
        self._half, self._products = half, PRODUCTS[device.type]
        self._a, self._b = (_matrix(nonce, name, side).to(device, half) for name in "ab")
        self._c = torch.empty_like(self._a)
        signs = models.numbers(nonce, "signs", (side, numerics.VECTORS))
        self._signs = (signs >= 0).double().mul(2).sub(1).to(device)
        self._places = torch.arange(self.elements, dtype=torch.int32, device=device)
        self._numbers = torch.zeros(self.elements, dtype=torch.float32, device=device)
        self._salt = nonce % _LARGEST

    def compute(self):
        """Multiply, several times."""
        for _ in range(self._products):
            torch.matmul(self._a, self._b, out=self._c)

    def reduce(self):
        """Reduce and wait. The largest number is taken, so that repetition does not overflow."""
        self._start(distributed.ReduceOp.MAX).wait()

    def together(self, operation=distributed.ReduceOp.MAX):
        """Start to reduce, multiply, then wait for both."""
        running = self._start(operation)
        self.compute()
        running.wait()

    def check(self):
        """Reduce and multiply at once, a few times.

        Returns:
            The number of wrong sums, and the largest difference of a row of a product as a share of
            its bound.
        """
        wrong, share = 0, 0.0
        for turn in range(ROUNDS):
            self._numbers.copy_(self._of(self._group.rank, turn))
            self._c.zero_()
            self.together(distributed.ReduceOp.SUM)
            right = sum(self._of(rank, turn) for rank in range(self._group.ranks))
            wrong += int((self._numbers != right).sum())
            share = max(share, self.share())
        return wrong, share

    def share(self):
        """Return the largest difference of a row of the last product as a share of its bound."""
        how = {"output": "bf16" if self._half == torch.bfloat16 else "fp16", "cuts": True}
        return numerics.whole_product(self._a, self._b, self._c, self._signs, **how)

    def _start(self, operation):
        return distributed.all_reduce(self._numbers, op=operation, async_op=True)

    def _of(self, rank, turn):
        """Return a rank's whole numbers; sums of them are exact in any order."""
        return ((self._places * (rank + 1) + self._salt + turn) % _LARGEST).float()


def _matrix(nonce, name, side):
    """Return numbers in -1..1 of a nonce: a line of digests, tiled; no row repeats another."""
    line = models.numbers(nonce, f"overlap {name}", (_PERIOD,))
    return line.repeat(side * side // _PERIOD + 1)[: side * side].reshape(side, side)
