"""Check and time Fourier transforms, dense solvers and sparse products through PyTorch."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, os.pardir, "lib")]

import canary_env  # noqa: E402
import canary_lines as say  # noqa: E402
import canary_program as program  # noqa: E402
import canary_timing as timing  # noqa: E402


def main():
    """Check every part against double precision, then time it."""
    options = program.options(__doc__)
    torch, device = canary_env.torch(options)
    import dense
    import fourier
    import sparse

    on_gpu = device.type == "cuda"
    clock = timing.TorchClock(torch) if on_gpu else timing.WallClock()
    cache = timing.TorchCache(torch, device)
    torch.backends.cuda.matmul.allow_tf32 = False
    parts = [part for module in (fourier, dense, sparse) for part in module.parts(options, device)]
    progress = program.Steps(len(parts))
    for part in parts:
        share, what = part.worst()
        message = f"{what}: {share:.3g} of what is allowed"
        say.check(f"{part.name}-right", share <= 1, message)
        times = timing.repeat(part.run, clock, options, before=cache)
        timing.report(part.name, "ms", times, timing.milliseconds)
        progress.done()


if __name__ == "__main__":
    program.start(main)
