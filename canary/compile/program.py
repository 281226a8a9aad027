"""Compile a model with torch.compile, and run Triton kernels: results, recompilations, speed."""

import importlib.util
import os
import shutil
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, os.pardir, "lib")]

import canary_env  # noqa: E402
import canary_program as program  # noqa: E402

OLDEST = (2, 1)
"""First PyTorch that compiles for any size once it has seen two."""
CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


def main():
    """Check compiled results, time them, then the compiler, then the kernels."""
    options = program.options(__doc__)
    folder = tempfile.mkdtemp()
    try:
        for name in CACHES:  # read when PyTorch and Triton start
            os.environ[name] = os.path.join(folder, name.lower())
        _run(options)
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # a compiler may still write there


def _run(options):
    triton = importlib.util.find_spec("triton") is not None
    torch, device = canary_env.torch(options, has_triton=triton)
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < OLDEST:
        raise program.NothingToTest(f"PyTorch {torch.__version__} is older than 2.1")
    if device.type == "cuda" and not triton:
        raise program.NothingToTest("the image has no Triton, which torch.compile needs on a GPU")
    import handwritten
    import right
    import speed

    progress = program.Steps(4)
    compiled = right.check(options.seed, device)
    progress.done()
    if compiled:
        speed.measure(options, device)
        progress.done()
        speed.measure_compiler(options, device)
        progress.done()
    handwritten.measure(options, device)
    progress.done()


if __name__ == "__main__":
    program.start(main)
