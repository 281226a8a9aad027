"""Train a small transformer and a small convnet: loss curves, speed, memory and step times."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, os.pardir, "lib")]
# cuBLAS reads this when it starts; without it some products differ from run to run.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import canary_env  # noqa: E402
import canary_program as program  # noqa: E402


def main():
    """Check loss curves, then measure speed."""
    options = program.options(__doc__)
    _, device = canary_env.torch(options)
    import curves
    import speed

    steps = program.Steps(len(curves.MODELS) + len(speed.names()))
    for name in curves.MODELS:
        curves.check(name, options.seed, device)
        steps.done()
    for name in speed.names():
        speed.measure(name, options, device)
        steps.done()


if __name__ == "__main__":
    program.start(main)
