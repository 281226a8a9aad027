"""Feed a GPU with a DataLoader: samples, rate, copies, and how long the GPU waits."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, os.pardir, "lib")]

import canary_env  # noqa: E402
import canary_program as program  # noqa: E402


def main():
    """Check an epoch and the copies, then time the loader, the copies and a fed step."""
    options = program.options(__doc__)
    _, device = canary_env.torch(options, cpus=len(os.sched_getaffinity(0)))
    import feeding

    progress = program.Steps(4)
    feeding.check_epoch(device)
    progress.done()
    feeding.check_copies(device)
    progress.done()
    feeding.measure_copies(options, device)
    progress.done()
    feeding.measure_loader(options, device)
    progress.done()


if __name__ == "__main__":
    program.start(main)
