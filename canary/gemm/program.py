"""Multiply matrices in fp32, tf32, fp16 and bf16: speed, error, repeatability."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, os.pardir, "lib")]
# Set before the import of PyTorch: one workspace per stream, so that products are independent.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import canary_env  # noqa: E402
import canary_lines as say  # noqa: E402
import canary_numerics as numerics  # noqa: E402
import canary_program as program  # noqa: E402
import canary_timing as timing  # noqa: E402

PRECISIONS = {
    # name: (type of the matrices, precision that inputs are rounded to, precision of the result)
    "fp32": ("float32", None, "fp32"),
    "tf32": ("float32", "tf32", "fp32"),
    "fp16": ("float16", None, "fp16"),
    "bf16": ("bfloat16", None, "bf16"),
}
SIZES = {"cuda": 8192, "cpu": 256}
"""Rows and columns: large enough to use a current GPU fully, small enough for a MIG slice."""
REFERENCE_ROWS = 64
SMALL, LONG = {"cuda": 512, "cpu": 128}, {"cuda": 32768, "cpu": 1024}
"""Few results of long sums: cuBLAS splits these sums, so their order can change."""
ROUNDS = 8


def main():
    """Check error and repeatability of every precision, then time it."""
    options = program.options(__doc__)
    settings = {"cublas_workspace": os.environ["CUBLAS_WORKSPACE_CONFIG"]}
    torch, device = canary_env.torch(options, size=SIZES[options.device], **settings)
    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    clock = timing.TorchClock(torch) if device.type == "cuda" else timing.WallClock()
    progress = program.Steps(len(PRECISIONS))
    for name, (kind, inputs, output) in PRECISIONS.items():
        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
        a, b = (_matrix(torch, SIZES[options.device], kind, device) for _ in range(2))
        _right(torch, name, a, b, inputs if device.type == "cuda" else None, output)
        _same(torch, name, kind, device, SMALL[options.device], LONG[options.device])
        _time(torch, name, a, b, clock, options)
        progress.done()


def _matrix(torch, size, kind, device, columns=None):
    """Return standard normal numbers, made in fp32 on the CPU for reproducibility."""
    return torch.randn(size, columns or size).to(device=device, dtype=getattr(torch, kind))


def _right(torch, name, a, b, inputs, output):
    """Compare some rows with the CPU in double precision, from the rounded matrices."""
    rows = torch.linspace(0, a.shape[0] - 1, REFERENCE_ROWS).long()
    exact = torch.matmul(a.cpu()[rows].double(), b.cpu().double())
    found = torch.matmul(a, b).cpu()[rows].double()
    bound = numerics.product_bound(inputs, terms=a.shape[1], output=output)
    numerics.check_error(f"{name}-right", numerics.error(found, exact), bound)


def _same(torch, name, kind, device, small, terms):
    """Repeat a product on two streams at once: the bits must be equal."""
    a = _matrix(torch, small, kind, device, terms)
    b = _matrix(torch, terms, kind, device, small)
    first = torch.matmul(a, b)
    differing = 0
    for product in _products(torch, a, b, device):
        differing += not torch.equal(product, first)
    message = f"{differing} of {2 * ROUNDS} products differ from the first"
    say.check(f"{name}-repeatable", differing == 0, message)


def _products(torch, a, b, device):
    if device.type == "cpu":
        return [torch.matmul(a, b) for _ in range(2 * ROUNDS)]
    torch.cuda.synchronize()
    products = []
    streams = torch.cuda.Stream(), torch.cuda.Stream()
    for _ in range(ROUNDS):
        for stream in streams:
            with torch.cuda.stream(stream):
                products.append(torch.matmul(a, b))
    torch.cuda.synchronize()
    return products


def _time(torch, name, a, b, clock, options):
    result = torch.empty_like(a)
    times = timing.repeat(lambda: torch.matmul(a, b, out=result), clock, options)
    operations = 2 * a.shape[0] * a.shape[1] * b.shape[1]
    timing.report(name, "TFLOP/s", times, timing.per_second(operations / 1e12))


if __name__ == "__main__":
    program.start(main)
