"""Fourier transforms: each against the CPU's in double precision, forwards and back.

The bound is that of Higham, "Accuracy and Stability of Numerical Algorithms", 2nd edition, theorem
24.2: the error in the 2-norm is at most ``log2(n) (mu + 4 sqrt(2) u)`` of the result's, with
weights as exact as ``mu = u``, for a plan of radix 2. Twice that is allowed for other plans. Going
back doubles the number of steps. In double precision the CPU's own error is within the same bound.
"""

import math

import canary_models as models
import canary_numerics as numerics
import torch

_EACH = 2 * (1 + 4 * math.sqrt(2))
ODD = 3**3 * 5**2 * 7**2
SIZES = {
    "cuda": {
        "fft-1d": (256, 65536),
        "fft-odd": (256, ODD),
        "fft-2d": (16, 2048, 2048),
        "fp64-fft": (64, 65536),
    },
    "cpu": {
        "fft-1d": (4, 256),
        "fft-odd": (4, 105),
        "fft-2d": (2, 16, 32),
        "fp64-fft": (4, 256),
    },
}


class Transform:
    """Complex transform of each of several signals, in single precision or as its name says.

    Attributes:
        name: name of the metric.
    """

    def __init__(self, name, shape, seed, device):
        self.name, self._places = name, tuple(range(1, len(shape)))
        period = [models.numbers(seed, f"{name} {part}", (shape[0], 251)) for part in ("re", "im")]
        length = math.prod(shape[1:])
        # 251 is prime to every length here, so the period is no symmetry of the transform.
        real, imaginary = (p.repeat(1, length // 251 + 1)[:, :length] for p in period)
        self._precision = "fp64" if name.startswith("fp64") else "fp32"
        given = torch.complex(real, imaginary).reshape(shape).to(device)
        self._given = given.to(torch.complex128) if self._precision == "fp64" else given
        self._steps = math.log2(length)

    def run(self):
        """Transform."""
        return torch.fft.fftn(self._given, dim=self._places)

    def worst(self, found):
        """Return the largest error of a signal as a share of its bound, and of what it is."""
        exact = torch.fft.fftn(self._given.cpu().to(torch.complex128), dim=self._places)
        back = torch.fft.ifftn(found, dim=self._places).cpu()
        return max(
            (self._share(found.cpu(), exact, 1), "forwards"),
            (self._share(back, self._given.cpu(), 2), "forwards and back"),
        )

    def _share(self, found, right, times):
        off = torch.linalg.vector_norm(found - right, dim=self._places)
        size = torch.linalg.vector_norm(right, dim=self._places)
        bound = _EACH * self._steps * times * numerics.ROUNDING[self._precision]
        share = float((off / size).max()) / bound
        return share if math.isfinite(share) else math.inf


def parts(options, device):
    """Yield the transforms."""
    for name, shape in SIZES[device.type].items():
        yield Transform(name, shape, options.seed, device)
