"""``compatgate canary lint``: are workloads whole, before anything is run?"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from compatgate.cli.database import add_format

if TYPE_CHECKING:
    import argparse

    from compatgate.canary.workloads.finding import Finding

_EPILOG = """\
Checks the manifest against its schema, the program (there, compiles, executable), the Dockerfile,
units and descriptions, the page README.md, that images are pinned by digest (a warning), and that
samples are whole and of the workload as it is now (else a warning).
exit status: 0 nothing wrong (warnings do not count, see --strict), 1 errors, 2 bad usage
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action."""
    parser.epilog = _EPILOG
    parser.add_argument(
        "folders",
        nargs="*",
        metavar="DIR",
        help="workload folder, or a folder of workloads (default: the shipped ones)",
    )
    parser.add_argument("--strict", action="store_true", help="treat warnings as errors")
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Look and print.

    Raises:
        BadInput: there is no such folder, or nothing of this in it.
    """
    from compatgate.canary.workloads.lint import lint
    from compatgate.resources import canary_dir

    seen: list[Path] = []
    found: list[Finding] = []
    for folder in map(Path, args.folders or [str(canary_dir())]):
        looked_at, findings = lint(folder)
        seen += looked_at
        found += findings
    if args.format == "json":
        print(json.dumps({"workloads": [str(path) for path in seen], "findings": _plain(found)}))
    else:
        _print(seen, found)
    return int(any(f.severity == "error" or args.strict for f in found))


def _plain(found: list[Finding]) -> list[dict[str, str]]:
    return [{"file": f.file, "severity": f.severity, "message": f.message} for f in found]


def _print(seen: list[Path], found: list[Finding]) -> None:
    for finding in found:
        print(f"{finding.file}: {finding.severity}: {finding.message}")
    errors = sum(f.severity == "error" for f in found)
    counts = f"{_count(errors, 'error')}, {_count(len(found) - errors, 'warning')}"
    print(f"{_count(len(seen), 'workload')}: {counts}", file=sys.stderr)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
