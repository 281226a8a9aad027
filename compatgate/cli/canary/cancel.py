"""``compatgate canary cancel``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatgate.cli.canary.access import accessed
from compatgate.cli.service import add_place

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action."""
    parser.add_argument("runs", nargs="+", metavar="ID", help="of runs, as canary list shows them")
    add_place(parser)
    parser.add_argument("--format", choices=("text", "json"), default="text", help="(text)")


def run(args: argparse.Namespace) -> int:
    """End runs: at once where they wait, else when their worker next reports.

    Raises:
        NotFound: there is no such run.
        Conflict: it has ended.
    """
    from compatgate.cli.canary.words import print_runs

    with accessed(args) as gate:
        print_runs([gate.act("cancel", name) for name in args.runs], args.format)
    return 0
