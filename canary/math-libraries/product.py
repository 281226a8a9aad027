"""A product of matrices in double precision: all of it against its factors (Freivalds)."""

import math

import canary_models as models
import canary_numerics as numerics
import torch

SIZES = {"cuda": 4096, "cpu": 96}
_PERIOD = 4099


class Product:
    """Product of two matrices in double precision.

    Attributes:
        name: name of the metric.
    """

    def __init__(self, seed, device):
        self.name, size = "fp64-product", SIZES[device.type]
        # Times pi, so that every bit of the mantissa is in use.
        lines = [
            models.numbers(seed, f"product {name}", (_PERIOD,)).double() * math.pi for name in "ab"
        ]
        count = size * size // _PERIOD + 1
        self._a, self._b = (
            line.repeat(count)[: size * size].reshape(size, size).to(device) for line in lines
        )
        signs = torch.randint(2, (size, numerics.VECTORS), dtype=torch.float64) * 2 - 1
        self._signs = signs.to(device)

    def run(self):
        """Multiply."""
        return self._a @ self._b

    def worst(self, result):
        """Return the largest difference of a row as a share of its bound, and of what it is.

        The comparison is rounded as much as the product: with its three products with vectors, the
        standard deviation of a difference is twice that of the product alone.
        """
        share = numerics.whole_product(self._a, self._b, result, self._signs, sums="fp64")
        return share / 2, "rows"


def parts(options, device):
    """Yield the product."""
    yield Product(options.seed, device)
