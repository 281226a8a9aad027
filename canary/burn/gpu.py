"""Load one GPU, and compare every result with its first one; runs in a process for each GPU.

Python 3.8 or newer.
"""

import os
import time

import canary_models as models
import canary_numerics as numerics
import torch

SIDES = {
    "cuda": {"half": 8192, "fp32": 4096, "fp64": 2048},
    "cpu": {"half": 64, "fp32": 64, "fp64": 64},
}
"""Side of the products: tensor cores, and the units of single and of double precision."""
BYTES = {"cuda": 1 << 30, "cpu": 1 << 16}
"""Memory that is written and read back."""
CALLS = {"cuda": 16, "cpu": 1}
"""Products between two comparisons."""
_PERIOD = 4099


def work(number, names, nonce, windows, options):
    """Work for the length of all windows; return the report.

    Args:
        number: of this process.
        names: what CUDA_VISIBLE_DEVICES calls each process's GPU or MIG slice.
        nonce: number that results follow from, the same for all GPUs.
        windows: seconds of each.
        options: of `canary_program`.

    Returns:
        The largest share of a bound of the first products; by kind the results that differ from the
        first; and the products of half precision in each window, per second.
    """
    if options.device == "cuda":
        os.environ["CUDA_VISIBLE_DEVICES"] = names[number]  # read when CUDA starts
    else:
        torch.set_num_threads(1)
    device = torch.device(options.device)
    models.tf32(False)
    loads = [Product(kind, nonce, device) for kind in SIDES[options.device]]
    memory = Memory(nonce, device)
    differing = dict.fromkeys([load.kind for load in loads] + ["memory"], 0)
    rates = []
    for length in windows:
        begin, done = time.monotonic(), 0
        while not done or time.monotonic() - begin < length:
            for load in loads:
                differing[load.kind] += load.differs(CALLS[options.device])
                done += CALLS[options.device] if load is loads[0] else 0
            differing["memory"] += memory.differs()
        rates.append(done / (time.monotonic() - begin))
    share = max(load.share for load in loads)
    return {"share": share, "differing": differing, "rates": rates}


class Product:
    """Product of two matrices, of which every result must have the bits of the first one.

    Attributes:
        kind: name in `SIDES`.
        share: largest difference of a row of the first result as a share of its bound.
    """

    def __init__(self, kind, nonce, device):
        self.kind, side = kind, SIDES[device.type][kind]
        half = models.reduced_precision(device)
        dtype = {"half": half, "fp32": torch.float32, "fp64": torch.float64}[kind]
        self._a, self._b = (_numbers(nonce, n, side * side, device).to(dtype) for n in "ab")
        self._a, self._b = (part.reshape(side, side) for part in (self._a, self._b))
        self._first, self._last = (torch.empty_like(self._a) for _ in range(2))
        torch.matmul(self._a, self._b, out=self._first)
        signs = _numbers(nonce, "signs", side * numerics.VECTORS, device)
        signs = (signs >= 0).double().mul(2).sub(1).reshape(side, numerics.VECTORS)
        name = {"half": "fp16" if half == torch.float16 else "bf16"}.get(kind, kind)
        sums = "fp64" if kind == "fp64" else "fp32"
        how = {"sums": sums, "output": name, "cuts": kind == "half"}
        self.share = numerics.whole_product(self._a, self._b, self._first, signs, **how)

    def differs(self, calls):
        """Multiply a number of times, and return whether the last result has other bits."""
        for _ in range(calls):
            torch.matmul(self._a, self._b, out=self._last)
        return not torch.equal(self._last, self._first)


class Memory:
    """Memory that is written with a pattern and its complement in turn, and read back."""

    def __init__(self, nonce, device):
        self._pattern = _numbers(nonce, "memory", BYTES[device.type] // 4, device).view(torch.int32)
        self._written = torch.empty_like(self._pattern)

    def differs(self):
        """Write and read once; return whether a word came back changed."""
        torch.bitwise_not(self._pattern, out=self._written)
        torch.bitwise_not(self._written, out=self._written)
        return not torch.equal(self._written, self._pattern)


def _numbers(nonce, name, count, device):
    """Return numbers in -1..1 of a nonce: a line of digests, tiled."""
    line = models.numbers(nonce, f"burn {name}", (_PERIOD,)).to(device)
    return line.repeat(count // _PERIOD + 1)[:count]
