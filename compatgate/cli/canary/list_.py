"""``compatgate canary list``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatgate.cli.gate import add_place, ask_all, gate_of
from compatgate.cli.parser import some

if TYPE_CHECKING:
    import argparse

_STATES = (
    "active", "ended", "queued", "leased", "preparing", "running", "judging", "passed", "failed",
    "inconclusive", "error", "timeout", "cancelled",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action."""
    parser.add_argument("--state", choices=_STATES, metavar="STATE", help=", ".join(_STATES))
    parser.add_argument("--target", metavar="T", help="target")
    parser.add_argument("--suite", metavar="S", help="suite")
    parser.add_argument("--entry", metavar="NAME", help="entry")
    parser.add_argument("--host", metavar="H", help="host")
    parser.add_argument("--purpose", choices=("request", "verification"), help="purpose")
    parser.add_argument(
        "--limit", type=some, default=50, metavar="N", help="number of runs (default: 50)"
    )
    add_place(parser)
    parser.add_argument(
        "--format", choices=("text", "json"), default="text", help="output format (default: text)"
    )


def run(args: argparse.Namespace) -> int:
    """Print runs, newest first."""
    from compatgate.cli.canary.words import print_runs

    names = ("state", "target", "suite", "entry", "host", "purpose")
    with gate_of(args) as gate:
        from compatgate.client.operations import Operations

        filters = {name: getattr(args, name) for name in names}
        print_runs(ask_all(gate, args.limit, Operations.list_runs, **filters), args.format)
    return 0
