"""Check and time convolutions forward and backward, autotuned and deterministic."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, os.pardir, "lib")]

import canary_env  # noqa: E402
import canary_lines as say  # noqa: E402
import canary_numerics as numerics  # noqa: E402
import canary_program as program  # noqa: E402


def main():
    """Check the results of every shape, then time it."""
    options = program.options(__doc__)
    torch, device = canary_env.torch(options)
    import right
    import shapes
    import speed

    cudnn = torch.backends.cudnn
    on_gpu = device.type == "cuda"
    used = not on_gpu or (cudnn.enabled and cudnn.is_available())
    say.check("cudnn", used, f"version {cudnn.version()}" if used else "PyTorch does not use it")
    steps = program.Steps(2 * len(shapes.SHAPES))
    right.check(options.seed, device, steps)
    timed = []
    for shape in shapes.SHAPES:
        timed.append(speed.measure(shape if on_gpu else shapes.smallest(shape), options, device))
        steps.done()
    numerics.check_whole("timed", *max(timed))


if __name__ == "__main__":
    program.start(main)
