"""What every program of a workload begins and ends with. Python 3.8 or newer, nothing else.

import canary_program as program

def main():
    options = program.options(__doc__)
    ...

if __name__ == "__main__":
    program.start(main)
"""

import argparse
import os
import sys

import canary_lines as say

NO_GPU = 77
"""Exit status where there is nothing to look at, so that it is not taken for a failure."""
REPETITIONS = 30
"""Values of a metric; what the judge promises of its errors holds from here on."""
WARMUP = 5


class NoGpu(Exception):
    """A GPU is needed and there is none that can be used; the message says why."""


class NothingToTest(Exception):
    """The image does not have what the workload is about; the message says what."""


def parser(description, devices=("cuda", "cpu")):
    """Arguments that all programs share: ``--device``, ``--seed`` and how often.

    Args:
        description: the program's docstring; its first line is shown.
        devices: what it can run on, the default first.
    """
    made = argparse.ArgumentParser(description=(description or "").split("\n")[0])
    made.add_argument(
        "--device",
        choices=devices,
        default=devices[0],
        help="cpu runs the same path without a GPU, for development; it is never evidence",
    )
    made.add_argument("--seed", type=_count(0), default=0)
    made.add_argument("--repetitions", type=_count(1), default=REPETITIONS)
    made.add_argument("--warmup", type=_count(0), default=WARMUP)
    return made


def options(description):
    """The shared arguments, read; wrong ones end the program with status 2."""
    return parser(description).parse_args()


def start(main):
    """Run a program and end it as the engine understands it.

    Without a GPU it ends with one line and `NO_GPU`. Where the image lacks what the workload is
    about, it ends with one line and status 0: it reported nothing, so the step is inconclusive.
    Anything else that goes wrong is left to be seen, with its traceback, as a failure.
    """
    name = os.path.basename(os.path.dirname(os.path.abspath(sys.argv[0])))
    try:
        status = main() or 0
    except NoGpu as why:
        print(f"{name}: no GPU: {why}")
        status = NO_GPU
    except NothingToTest as why:
        print(f"{name}: nothing to test: {why}")
        status = 0
    sys.stdout.flush()
    sys.exit(status)


class Steps:
    """Progress by parts of equal weight."""

    def __init__(self, total):
        self._total, self._done = max(total, 1), 0

    def done(self):
        """Say that one more is done."""
        self._done += 1
        say.progress(min(self._done / self._total, 1.0))


def _count(least):
    def read(text):
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{value} is less than {least}")
        return value

    read.__name__ = "whole number"
    return read
