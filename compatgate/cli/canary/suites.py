"""``compatgate canary suites``: which there are, and what they run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatgate.cli.canary.library import add_workloads
from compatgate.cli.database import add_format, table

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="only this suite")
    add_workloads(parser)
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """List.

    Raises:
        NotFound: there is no such suite.
        ManyProblems: a file is wrong.
    """
    import json

    from compatgate.canary.workloads import Library

    library = Library.open(args.workloads)
    names = [library.suite(args.name).name] if args.name else list(library.suites)
    if args.format == "json":
        bodies = [
            {
                "name": name,
                "description": library.suite(name).description,
                "gpus": library.gpus_of(name),
                "nodes": library.nodes_of(name),
                "workloads": list(library.suite(name).workloads),
            }
            for name in names
        ]
        print(json.dumps(bodies[0] if args.name else {"suites": bodies}, indent=2))
        return 0
    rows = [
        (
            name,
            str(library.gpus_of(name)),
            " ".join(library.suite(name).workloads),
            library.suite(name).description,
        )
        for name in names
    ]
    print(table(("NAME", "GPUS", "WORKLOADS", "DESCRIPTION"), rows))
    return 0
