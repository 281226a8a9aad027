"""Multiply matrices in fp8 (E4M3) if the GPU can: speed, error, repeatability."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, os.pardir, "lib")]

import canary_env  # noqa: E402
import canary_lines as say  # noqa: E402
import canary_numerics as numerics  # noqa: E402
import canary_program as program  # noqa: E402
import canary_timing as timing  # noqa: E402

SIZES = {"cuda": 8192, "cpu": 128}
REFERENCE_ROWS = 64
ROUNDS = 8
FIRST = (8, 9)
"""Lowest compute capability with fp8 tensor cores."""


def main():
    """Check error and repeatability, then time, and check all of the product timed last."""
    options = program.options(__doc__)
    torch, device = canary_env.torch(options, size=SIZES[options.device])
    product = _product(torch, device)
    size = SIZES[options.device]
    a = torch.randn(size, size).to(device).to(torch.float8_e4m3fn)
    # The second matrix must be in column order.
    b = torch.randn(size, size).to(device).to(torch.float8_e4m3fn).t()
    rows = torch.linspace(0, size - 1, REFERENCE_ROWS).long()
    exact = torch.matmul(a.cpu().float()[rows].double(), b.cpu().float().double())
    first = product(a, b)
    bound = numerics.product_bound(None, terms=size, sums="fp8-sums", output="bf16")
    numerics.check_error("right", numerics.error(first.cpu()[rows].double(), exact), bound)
    differing = sum(not torch.equal(product(a, b), first) for _ in range(ROUNDS))
    say.check("repeatable", differing == 0, f"{differing} of {ROUNDS} differ from the first")
    clock = timing.TorchClock(torch) if device.type == "cuda" else timing.WallClock()
    times, last = timing.repeat_kept(lambda: product(a, b), clock, options)
    timing.report("fp8", "TFLOP/s", times, timing.per_second(2 * size**3 / 1e12))
    signs = torch.randint(2, (size, numerics.VECTORS), dtype=torch.float64) * 2 - 1
    wide = (tensor.float() for tensor in (a, b))
    share = numerics.whole_product(*wide, last, signs.to(device), sums="fp8-sums", output="bf16")
    numerics.check_whole("whole", share)


def _product(torch, device):
    """Return the framework's product of two fp8 matrices with a bf16 result.

    Raises:
        NothingToTest: GPU or framework do not support it.
    """
    if not hasattr(torch, "float8_e4m3fn") or not hasattr(torch, "_scaled_mm"):
        raise program.NothingToTest(f"PyTorch {torch.__version__} has no fp8 products")
    if device.type == "cpu":
        return lambda a, b: torch.matmul(a.float(), b.float()).bfloat16()
    capability = torch.cuda.get_device_capability(device)
    if tuple(capability) < FIRST:
        raise program.NothingToTest("compute capability {}.{} has no fp8".format(*capability))
    one = torch.ones((), device=device)

    def product(a, b):
        settings = {"scale_a": one, "scale_b": one, "out_dtype": torch.bfloat16}
        made = torch._scaled_mm(a, b, use_fast_accum=False, **settings)
        # Up to PyTorch 2.4 the function also returned the largest value.
        return made[0] if isinstance(made, tuple) else made

    return product


if __name__ == "__main__":
    program.start(main)
