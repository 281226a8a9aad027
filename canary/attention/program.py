"""Check scaled dot product attention: each backend against fp64, and the default one's speed."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, os.pardir, "lib")]

import canary_env  # noqa: E402
import canary_numerics as numerics  # noqa: E402
import canary_program as program  # noqa: E402


def main():
    """Check every backend on every case, then measure the default one."""
    options = program.options(__doc__)
    torch, device = canary_env.torch(options)
    if not hasattr(torch.nn.functional, "scaled_dot_product_attention"):
        raise program.NothingToTest(f"PyTorch {torch.__version__} has no fused attention")
    import backends
    import right
    import speed

    steps = program.Steps(len(backends.NAMES) + len(speed.CASES))
    right.check(options.seed, device, options.repetitions, steps)
    timed = []
    for case in speed.CASES:
        timed.append(speed.measure(case, options, device))
        steps.done()
    numerics.check_whole("timed", *max(timed))


if __name__ == "__main__":
    program.start(main)
