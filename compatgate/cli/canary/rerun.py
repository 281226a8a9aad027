"""``compatgate canary rerun``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatgate.cli.canary.access import accessed
from compatgate.cli.service import add_place

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action."""
    parser.add_argument("run", metavar="ID", help="of the run, as canary list shows it")
    add_place(parser)
    parser.add_argument("--format", choices=("text", "json"), default="text", help="(text)")


def run(args: argparse.Namespace) -> int:
    """Queue the same again, for what the target is now.

    Raises:
        NotFound: there is no such run, or no longer its suite, target or pool.
        Conflict: it has not ended yet.
    """
    from compatgate.cli.canary.words import print_runs

    with accessed(args) as gate:
        print_runs(gate.act("rerun", args.run)["runs"], args.format)
    return 0
