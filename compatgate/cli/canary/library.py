"""What the commands about workloads share."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


def add_workloads(parser: argparse.ArgumentParser) -> None:
    """The option for operators' own workloads."""
    parser.add_argument(
        "--workloads",
        metavar="DIR",
        action="append",
        help="own workloads and suites beside the shipped ones ($COMPATGATE_WORKLOADS); may be"
        " repeated",
    )
