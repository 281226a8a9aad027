"""``compatgate canary logs``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from compatgate.cli.gate import add_place, gate_of

if TYPE_CHECKING:
    import argparse

    from compatgate.client import Client


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action."""
    parser.add_argument("run", metavar="ID", help="run id, as in canary list")
    parser.add_argument(
        "-f", "--follow", action="store_true", help="follow the log until the run ends"
    )
    parser.add_argument("--step", metavar="NAME", help="only this step's output")
    add_place(parser)


def run(args: argparse.Namespace) -> int:
    """Print a run's log.

    Raises:
        NotFound: there is no such run.
        Gone: its log was removed.
    """
    from compatgate.cli.terminal import printable

    with gate_of(args) as gate:
        whole = gate.show_logs(args.run, step=args.step)
        for text in _follow(gate, args) if args.follow else whole:
            sys.stdout.write(printable(text.replace("\t", "    ")))
            sys.stdout.flush()
    return 0


def _follow(gate: Client, args: argparse.Namespace) -> Iterator[str]:
    from compatgate.errors import Unavailable
    from compatgate.gate.runs.following import heading

    shown = None
    for event in gate.follow_run(args.run, step=args.step):
        name, data = event.name, event.data
        if name == "output":
            if args.step is None and (data["step"], data["attempt"]) != shown:
                shown = (data["step"], data["attempt"])
                yield heading(*shown)
            yield data["text"]
        elif name == "error":
            raise Unavailable(f"the log stopped: {data['detail']}")
        else:
            _tell(name, data)


def _tell(name: str, data: dict[str, object]) -> None:
    """What happens to the run is no part of its log."""
    if name == "end":
        reason = f": {data['reason']}" if data["reason"] else ""
        print(f"[{data['state']}{reason}]", file=sys.stderr)
