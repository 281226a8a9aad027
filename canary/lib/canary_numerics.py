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


def check_same(name, digests, what="runs"):
    """Report a check that all digests are equal."""
    digests = list(digests)
    say.check(name, len(set(digests)) == 1, f"{len(set(digests))} results in {len(digests)} {what}")
