"""Serve a language model with random weights: answers, time to the first token, tokens a second."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, os.pardir, "lib")]

import canary_env  # noqa: E402
import canary_program as program  # noqa: E402


def main():
    """Check the answers in every precision, then time a larger model."""
    options = program.options(__doc__)
    torch, device = canary_env.torch(options)
    if not hasattr(torch.nn.functional, "scaled_dot_product_attention"):
        raise program.NothingToTest(f"PyTorch {torch.__version__} has no fused attention")
    import quality
    import speed

    progress = program.Steps(1 + len(speed.BATCHES))
    quality.check(options.seed, device)
    progress.done()
    speed.measure(options, device, progress)


if __name__ == "__main__":
    program.start(main)
