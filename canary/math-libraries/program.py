"""Check and time transforms, solvers, sparse and double-precision products through PyTorch."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, os.pardir, "lib")]

import canary_env  # noqa: E402
import canary_lines as say  # noqa: E402
import canary_program as program  # noqa: E402
import canary_timing as timing  # noqa: E402


def main():
    """Time every part, and check the result that was timed last."""
    options = program.options(__doc__)
    torch, device = canary_env.torch(options)
    import dense
    import fourier
    import product
    import sparse

    on_gpu = device.type == "cuda"
    clock = timing.TorchClock(torch) if on_gpu else timing.WallClock()
    cache = timing.TorchCache(torch, device)
    torch.backends.cuda.matmul.allow_tf32 = False
    modules = fourier, dense, sparse, product
    parts = [part for module in modules for part in module.parts(options, device)]
    progress = program.Steps(len(parts))
    for part in parts:
        times, result = timing.repeat_kept(part.run, clock, options, before=cache)
        timing.report(part.name, "ms", times, timing.milliseconds)
        share, what = part.worst(result)  # of the result that was timed last
        message = f"{what}: {share:.3g} of what is allowed"
        say.check(f"{part.name}-right", share <= 1, message)
        progress.done()


if __name__ == "__main__":
    program.start(main)
