"""Start and end a workload's program. Needs only Python 3.8.

import canary_program as program

def main():
    options = program.options(__doc__)
    ...

if __name__ == "__main__":
    program.start(main)
"""

import argparse
import os
import re
import sys

import canary_lines as say

NO_GPU = 77
"""Exit status without a GPU, so that it does not count as a failure."""
NOTHING_TO_TEST = 78
"""Exit status where the image lacks the software to test; no failure either."""
REPETITIONS = 30
"""Values of a metric; the judge's error rates hold from here on."""
WARMUP = 5


class NoGpu(Exception):
    """Error: the program needs a usable GPU; the message says why there is none."""


class NothingToTest(Exception):
    """Error: the image lacks the software to test; the message names it."""


def parser(description, devices=("cuda", "cpu")):
    """Return a parser with the shared arguments: ``--device``, ``--seed`` and the repetitions.

    Args:
        description: docstring of the program; its first line is shown.
        devices: supported devices, the default first.
    """
    made = argparse.ArgumentParser(description=(description or "").split("\n")[0])
    made.add_argument(
        "--device",
        choices=devices,
        default=devices[0],
        help="cpu runs the same steps without a GPU, for development; the result is never evidence",
    )
    made.add_argument("--seed", type=_count(0), default=0)
    made.add_argument("--repetitions", type=_count(1), default=REPETITIONS)
    made.add_argument("--warmup", type=_count(0), default=WARMUP, help="0: do not settle")
    made.add_argument("--value-ms", type=_count(1), help="least milliseconds of one value")
    return made


def options(description):
    """Parse the shared arguments; wrong ones end the program with status 2."""
    return parser(description).parse_args()


def duration(text):
    """Read seconds from ``90s``, ``30m`` or ``4h``, for an argument of a parser."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    if not found or not float(found.group(1)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration; use 90s, 30m or 4h")
    return float(found.group(1)) * {"s": 1, "m": 60, "h": 3600}[found.group(2)]


def start(main):
    """Run a program, and end it as the engine expects.

    Without a GPU it ends with one line and `NO_GPU`; if the image lacks the software to test, with
    one line and `NOTHING_TO_TEST`. Both make the step inconclusive. Other errors end with their
    traceback, as a failure.
    """
    try:
        status = main() or 0
    except NoGpu as why:
        status = _end(f"no GPU: {why}", NO_GPU)
    except NothingToTest as why:
        status = _end(f"nothing to test: {why}", NOTHING_TO_TEST)
    sys.stdout.flush()
    sys.exit(status)


def _end(reason, status):
    """Print the reason, also for a person whose standard output goes to a file."""
    line = f"{os.path.basename(os.path.dirname(os.path.abspath(sys.argv[0])))}: {reason}"
    print(line)
    if os.isatty(2):
        print(line, file=sys.stderr)
    return status


class Steps:
    """Progress in parts of equal weight."""

    def __init__(self, total):
        self._total, self._done = max(total, 1), 0

    def done(self):
        """Report that one more part is done."""
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
