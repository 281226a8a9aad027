"""``compatgate canary rerun``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatgate.cli.gate import add_place, ask, gate_of

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action."""
    parser.add_argument("run", metavar="ID", help="run id, as in canary list")
    add_place(parser)
    parser.add_argument(
        "--format", choices=("text", "json"), default="text", help="output format (default: text)"
    )


def run(args: argparse.Namespace) -> int:
    """Queue the same again, for what the target is now.

    Raises:
        NotFound: there is no such run, or no longer its suite, target or pool.
        Conflict: it has not ended yet.
    """
    from compatgate.cli.canary.words import print_runs

    with gate_of(args) as gate:
        from compatgate.client.operations import Operations

        print_runs(ask(gate, Operations.rerun, args.run)["runs"], args.format)
    return 0
