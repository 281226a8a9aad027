"""Multiply matrices in fp32, tf32, fp16 and bf16: speed, error, repeatability.

Speed and error are those of the framework's usual settings. Repeatability is checked in a process
of its own, with the workspace of cuBLAS fixed and deterministic algorithms: neither can be taken
back, and both cost time.
"""

import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, os.pardir, "lib")]

import canary_env  # noqa: E402
import canary_lines as say  # noqa: E402
import canary_numerics as numerics  # noqa: E402
import canary_program as program  # noqa: E402
import canary_timing as timing  # noqa: E402
import repeated  # noqa: E402

PRECISIONS = {
    # name: (type of the matrices, precision that inputs are rounded to, precision of the result)
    "fp32": ("float32", None, "fp32"),
    "tf32": ("float32", "tf32", "fp32"),
    "fp16": ("float16", None, "fp16"),
    "bf16": ("bfloat16", None, "bf16"),
}
SIZES = {"cuda": 8192, "cpu": 256}
"""Rows and columns: large enough to use a current GPU fully, larger than its L2 cache, and small
enough for a MIG slice."""
REFERENCE_ROWS = 64


def main():
    """Check error and repeatability of every precision, then time it."""
    options = program.options(__doc__)
    size = SIZES[options.device]
    settings = {"cublas_workspace": os.environ.get("CUBLAS_WORKSPACE_CONFIG")}
    torch, device = canary_env.torch(options, size=size, **settings)
    clock = timing.TorchClock(torch) if device.type == "cuda" else timing.WallClock()
    progress = program.Steps(len(PRECISIONS) + 1)
    for name, differing in _repeated(torch, device, options.seed).items():
        message = f"{differing} of {2 * repeated.ROUNDS} products differ from the first"
        say.check(f"{name}-repeatable", differing == 0, message)
    progress.done()
    signs = torch.randint(2, (size, numerics.VECTORS), dtype=torch.float64) * 2 - 1
    signs = signs.to(device)
    for name, (kind, inputs, output) in PRECISIONS.items():
        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
        a, b = (_matrix(torch, size, kind, device) for _ in range(2))
        result = torch.empty_like(a)
        _right(torch, name, a, b, inputs if device.type == "cuda" else None, output)
        _time(torch, name, a, b, result, clock, options)
        # The last product of the timing, all of it.
        cuts = name != "fp32" and device.type == "cuda"
        share = numerics.whole_product(a, b, result, signs, inputs, output=output, cuts=cuts)
        numerics.check_whole(f"{name}-whole", share)
        progress.done()


def _repeated(torch, device, seed):
    """Return the number of products that differ, by precision."""
    kinds = {name: kind for name, (kind, _, _) in PRECISIONS.items()}
    if device.type == "cpu":  # nothing has to be fixed before its start
        return repeated.count(torch, device, kinds)
    command = [sys.executable, os.path.join(HERE, "repeated.py"), str(seed), json.dumps(kinds)]
    environment = {**os.environ, "CUBLAS_WORKSPACE_CONFIG": repeated.WORKSPACE}
    done = subprocess.run(  # noqa: S603
        command, stdout=subprocess.PIPE, text=True, env=environment, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def _matrix(torch, size, kind, device):
    """Return standard normal numbers, made in fp32 on the CPU for reproducibility."""
    return torch.randn(size, size).to(device=device, dtype=getattr(torch, kind))


def _right(torch, name, a, b, inputs, output):
    """Compare some rows with the CPU in double precision, from the rounded matrices."""
    rows = torch.linspace(0, a.shape[0] - 1, REFERENCE_ROWS).long()
    exact = torch.matmul(a.cpu()[rows].double(), b.cpu().double())
    found = torch.matmul(a, b).cpu()[rows].double()
    bound = numerics.product_bound(inputs, terms=a.shape[1], output=output)
    numerics.check_error(f"{name}-right", numerics.error(found, exact), bound)


def _time(torch, name, a, b, result, clock, options):
    times = timing.repeat(lambda: torch.matmul(a, b, out=result), clock, options)
    operations = 2 * a.shape[0] * a.shape[1] * b.shape[1]
    timing.report(name, "TFLOP/s", times, timing.per_second(operations / 1e12))


if __name__ == "__main__":
    program.start(main)
