"""Check a whole product of matrices without PyTorch or NumPy. Python 3.8 or newer."""

import math
import os
from operator import mul

_ROUNDING = 2.0**-24
"""Of fp32."""
_DEVIATIONS = 7


def whole_product(a, b, found, side):
    """Return the largest difference of a row of ``found`` as a share of its bound; above 1: wrong.

    As ``whole_product`` of canary_numerics, which derives the bound: ``found x`` is ``a (b x)`` for
    random signs ``x``, and an error anywhere in a row shows in full. fp32 sums, uncut.

    Args:
        a, b, found: square matrices, flat, row by row.
        side: of each.
    """
    bits = int.from_bytes(os.urandom(side // 8 + 1), "little")
    signs = [1.0 if bits >> at & 1 else -1.0 for at in range(side)]
    expected = _times(a, _times(b, signs, side), side)
    squares = _times([v * v for v in a], _times([v * v for v in b], [1.0] * side, side), side)
    allowed = _ROUNDING**2 * (side / 2 + 4)
    shares = [
        abs(is_ - should) / (_DEVIATIONS * math.sqrt(allowed * square) or _ROUNDING)
        for is_, should, square in zip(_times(found, signs, side), expected, squares)
    ]
    # The largest of numbers with a NaN among them depends on their order.
    return max(shares) if all(map(math.isfinite, shares)) else math.inf


def _times(matrix, vector, side):
    rows = (matrix[start : start + side] for start in range(0, side * side, side))
    return [math.fsum(map(mul, row, vector)) for row in rows]
