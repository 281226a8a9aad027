"""Sparse products: every element against double precision.

An element is a sum of few products, so the bound without any assumption is sharp: ``(k + 1) u``
times the same product of absolute values, ``k`` the entries of a row (Higham, "Accuracy and
Stability of Numerical Algorithms", 2nd edition, section 3.5).
"""

import math
import warnings

import canary_models as models
import canary_numerics as numerics
import torch

ENTRIES = 16
SIZES = {"cuda": (1 << 18, 64), "cpu": (256, 8)}
"""Rows, and columns of the dense matrix."""


class Product:
    """Sparse matrix in compressed rows, times a dense one, in single precision.

    Attributes:
        name: name of the metric.
    """

    def __init__(self, name, rows, columns, seed, device):
        self.name = name
        starts = torch.arange(0, rows * ENTRIES + 1, ENTRIES)
        # Entries of a row are far apart: a stride that is prime to the number of rows.
        row = torch.arange(rows).reshape(-1, 1)
        places = (row * 7919 + torch.arange(ENTRIES) * (rows // ENTRIES) + row % 13) % rows
        places = places.sort(1).values.flatten()
        values = models.numbers(seed, "values", (4096,)).repeat(rows * ENTRIES // 4096 + 1)
        values = values[: rows * ENTRIES]
        self._parts = starts, places, values
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch says that the format is new
            made = torch.sparse_csr_tensor(starts, places, values, (rows, rows))
        self._matrix = made.to(device)
        given = models.numbers(seed, "dense", (1021, columns)).repeat(rows // 1021 + 1, 1)
        self._given = given[:rows].contiguous().to(device)

    def run(self):
        """Multiply."""
        return self._matrix @ self._given

    def worst(self, result):
        """Return the largest error of an element as a share of its bound, and of what it is."""
        _, places, values = self._parts
        given = self._given.cpu().double()
        exact = torch.zeros_like(given)
        most = torch.zeros_like(given)
        for entry in range(ENTRIES):
            terms = values[entry::ENTRIES].double().reshape(-1, 1) * given[places[entry::ENTRIES]]
            exact += terms
            most += terms.abs()
        bound = (ENTRIES + 1) * numerics.ROUNDING["fp32"] * most
        off = (result.cpu().double() - exact).abs()
        share = float((off / bound.clamp(min=1e-300)).max())
        return (share if math.isfinite(share) else math.inf), "elements"


def parts(options, device):
    """Yield the products: with many columns, and with one."""
    rows, columns = SIZES[device.type]
    yield Product("sparse-matrix", rows, columns, options.seed, device)
    yield Product("sparse-vector", rows, 1, options.seed, device)
