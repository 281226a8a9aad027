"""Compare results with a reference, and check that bits are equal.

Accepts PyTorch tensors and NumPy arrays, and imports neither. Python 3.8 or newer.
"""

import ctypes
import hashlib
import math

import canary_lines as say

ROUNDING = {
    "fp64": 2.0**-53,
    "fp32": 2.0**-24,
    "tf32": 2.0**-11,
    "fp16": 2.0**-11,
    "bf16": 2.0**-8,
    "fp8": 2.0**-4,
    "fp8-sums": 2.0**-14,
}
"""Half the distance of neighbouring numbers near 1: mantissas of 52, 23, 10, 10, 7 and 3 bits.

Source: IEEE 754; "NVIDIA A100 Tensor Core GPU Architecture" for TF32; "FP8 Formats for Deep
Learning" (arXiv 2209.05433), E4M3, for fp8; "DeepSeek-V3 Technical Report" (arXiv 2412.19437),
3.3.2, for the precision of fp8 sums on Hopper's tensor cores.
"""


def error(result, reference):
    """Return the largest difference as a share of the reference's largest value.

    Args:
        result: tensor or array.
        reference: of the same shape and kind, on the same device, in a wider type.

    Returns:
        0 for equal ones; infinity if the result has a value that is not finite.
    """
    difference = float(abs(result - reference).max())
    scale = float(abs(reference).max())
    if not math.isfinite(difference):
        return math.inf
    if not scale:
        return 0.0 if not difference else math.inf
    return difference / scale


def product_bound(inputs, terms, sums="fp32", output=None):
    """Return the largest expected error of a product of matrices of zero mean, as `error` counts.

    Rounding errors add up like a random walk. The factors leave room for the largest of many
    elements and for truncation instead of rounding (tensor cores cut fp32 inputs to TF32), and are
    still small enough to detect a product in the next coarser precision.

    Args:
        inputs: precision that inputs are rounded to; None if the reference starts from the same
            bits.
        terms: length of the sums.
        sums: precision of the sums.
        output: precision that the result is rounded to; None for that of the sums.
    """
    rounded = 4 * ROUNDING[inputs] if inputs else 0.0
    summed = 4 * math.sqrt(terms) * ROUNDING[sums]
    return rounded + summed + 4 * ROUNDING[output or sums]


VECTORS = 4
"""Vectors of signs that a whole product is multiplied with."""
DEVIATIONS = 7
"""Standard deviations that a row may be off: 2 exp(-7^2 / 2) is 5e-11 for each row and vector."""
_REDUCTIONS = 2
"""Roundings to the output's precision: partial sums may be added in it (split-K)."""
_STEP = 4
"""Least products that a tensor core adds before it cuts off."""


def whole_product(a, b, found, signs, inputs=None, sums="fp32", output=None, cuts=False):
    """Compare a whole product of matrices with its factors, in the time of a few vectors.

    Freivalds (1977): if ``found`` is ``a b``, then ``found x`` is ``a (b x)`` for every ``x``. Here
    ``x`` has random signs, and both sides are computed in double precision. The difference ``r_i``
    of a row is ``sum_j e_ij x_j`` over the errors ``e_ij`` of its elements, so an error anywhere in
    the row shows in ``r_i`` in full.

    The bound of a row follows from rounding errors that are independent and have mean zero (the
    model of Higham and Mary, "A New Approach to Probabilistic Rounding Error Analysis", SIAM J.
    Sci. Comput. 41, 2019). With ``s_ij^2 = sum_k a_ik^2 b_kj^2``, the variance of ``e_ij`` is at
    most ``s_ij^2`` times the sum of

    - ``2 u_in^2``: both factors of each term are rounded;
    - ``u_sum^2 k / 2``: partial sums of random terms grow as the square root of their number, and
      each is rounded;
    - ``(2 u_out)^2``: the result is rounded, at most twice;
    - ``(c u_sum k / 4)^2`` with ``c = 2 * 0.8 * 2 / 3`` where sums are cut off: a cut, up to
      ``2 u`` towards zero, is no random walk; tensor cores cut after at least four products
      (Fasi, Higham, Mikaitis and Pranesh, "Numerical behavior of NVIDIA tensor cores", PeerJ
      Comput. Sci. 7, 2021). ``0.8`` is the mean size of a standard normal, ``2/3`` the mean of a
      square root.

    The signs are independent of the errors, so the variance of ``r_i`` is the sum over ``j``, and
    Hoeffding's inequality bounds the chance of `DEVIATIONS`. ``sum_j s_ij^2`` is the square of the
    factors times ones: two more products with a vector.

    Args:
        a: first factor, as the product read it.
        b: second factor.
        found: the product.
        signs: random signs in double precision on the same device, a column for each vector.
        inputs: precision that inputs are rounded to; None if the factors are rounded already.
        sums: precision of the sums.
        output: precision of the result; None for that of the sums.
        cuts: the sums are those of tensor cores.

    Returns:
        The largest difference of a row as a share of its bound; above 1 the product is wrong.
    """
    allowed = variance(b.shape[0], inputs, sums, output, cuts)
    off = abs(_times(found, signs) - _times(a, _times(b, signs)))
    ones = abs(signs[:, :1])
    return worst_share(off, _times(a, _times(b, ones, squared=True), squared=True), allowed)


def variance(terms, inputs=None, sums="fp32", output=None, cuts=False):
    """Return the variance of an element's error over its sum of squares, see `whole_product`."""
    total = 2 * ROUNDING[inputs] ** 2 if inputs else 0.0
    total += ROUNDING[sums] ** 2 * terms / 2
    total += (_REDUCTIONS * ROUNDING[output or sums]) ** 2
    if cuts:
        total += (2 * 0.8 * 2 / 3 * ROUNDING[sums] * terms / _STEP) ** 2
    return total


def worst_share(off, squares, allowed):
    """Return the largest difference as a share of its bound.

    Args:
        off: differences, folded with signs.
        squares: sums of the squares of all products behind each difference.
        allowed: of `variance`.
    """
    bound = DEVIATIONS * (allowed * squares) ** 0.5
    worst = float((off / (bound + (bound == 0))).max())
    exact = not bool(((bound == 0) * (off != 0)).any())
    return worst if math.isfinite(worst) and exact else math.inf


def rows_error(result, reference):
    """Return the largest error of a row (the last dimension) in the 2-norm, relative to its size.

    The size is the norm of the row, or the root mean square of all rows' norms where that is
    larger: a row that is small by cancellation has the rounding errors of its neighbours.
    """
    off, size = ((part * part).sum(-1) for part in (result - reference, reference))
    usual = size.mean()
    size = size + (usual - size) * (size < usual)
    worst = float((off / (size + (size == 0))).max()) ** 0.5
    exact = not bool(((size == 0) * (off != 0)).any())
    return worst if math.isfinite(worst) and exact else math.inf


def _times(matrix, vectors, squared=False, rows=1024):
    """Multiply a matrix with vectors in double precision, some rows at a time."""
    count = matrix.shape[0]
    made = hasattr(vectors, "new_empty")  # PyTorch's
    result = vectors.new_empty((count, vectors.shape[1])) if made else vectors[:1].repeat(count, 0)
    for at in range(0, count, rows):
        part = matrix[at : at + rows]
        wide = part.double() if made else part.astype("float64")
        result[at : at + rows] = (wide * wide if squared else wide) @ vectors
    return result


def bits(result):
    """Return a digest of a result's bytes, equal only for equal bits."""
    if hasattr(result, "tobytes"):
        content = result.tobytes()
    else:
        here = result.detach().cpu().contiguous()
        content = ctypes.string_at(here.data_ptr(), here.numel() * here.element_size())
    return hashlib.sha256(content).hexdigest()


def check_error(name, found, bound, what=""):
    """Report a check that an error stays within its bound."""
    message = f"error {found:.3g}, allowed {bound:.3g}"
    say.check(name, found <= bound, f"{what}: {message}" if what else message)


def check_whole(name, share, what=""):
    """Report a check that a whole product stays within its bound, see `whole_product`."""
    message = f"worst row at {share:.3g} of its bound"
    say.check(name, share <= 1, f"{what}: {message}" if what else message)


def check_same(name, digests, what="runs"):
    """Report a check that all digests are equal."""
    digests = list(digests)
    say.check(name, len(set(digests)) == 1, f"{len(set(digests))} results in {len(digests)} {what}")
