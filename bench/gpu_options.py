"""The options of bench/gpu.py."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def read_options(description: str | None) -> argparse.Namespace:
    """The options, read; wrong ones end the program with status 2."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--minutes", type=float, default=9.5, help="to begin and end runs in (9.5)")
    parser.add_argument("--baselines", type=int, default=2, help="runs that make a baseline (2)")
    parser.add_argument(
        "--repetitions", type=int, help="values of a metric (the program's own; 10 on a CPU)"
    )
    parser.add_argument(
        "--value-ms", type=int, help="least milliseconds of one value (the program's own: 200)"
    )
    parser.add_argument(
        "--workload", action="append", default=[], metavar="NAME", help="only this one; repeatable"
    )
    parser.add_argument(
        "--workloads", action="append", default=[], type=Path, metavar="DIR", help="also these"
    )
    parser.add_argument(
        "--python", default=sys.executable, help="interpreter that has PyTorch (this one)"
    )
    parser.add_argument(
        "--publish", action="store_true", help="put the section into bench/RESULTS.md; no CPU's"
    )
    options = parser.parse_args()
    if options.publish and options.device == "cpu":
        parser.error("--publish: what was measured on a CPU is not about GPUs")
    if not 0 < options.minutes <= 24 * 60:
        parser.error("--minutes: more than 0, at most a day")
    if options.baselines < 1 or (options.repetitions is not None and options.repetitions < 5):
        parser.error("--baselines: at least 1; --repetitions: at least 5")
    return options
