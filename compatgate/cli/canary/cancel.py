"""``compatgate canary cancel``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatgate.cli.gate import add_place, ask, gate_of

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action."""
    parser.add_argument("runs", nargs="+", metavar="ID", help="run ids, as in canary list")
    add_place(parser)
    parser.add_argument(
        "--format", choices=("text", "json"), default="text", help="output format (default: text)"
    )


def run(args: argparse.Namespace) -> int:
    """End runs: at once where they wait, else when their worker next reports.

    Raises:
        NotFound: there is no such run.
        Conflict: it has ended.
    """
    from compatgate.cli.canary.words import print_runs

    with gate_of(args) as gate:
        from compatgate.client.operations import Operations

        print_runs([ask(gate, Operations.cancel_run, name) for name in args.runs], args.format)
    return 0
