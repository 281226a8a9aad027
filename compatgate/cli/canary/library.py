"""Options and tables that the actions about workloads share."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


def add_workloads(parser: argparse.ArgumentParser) -> None:
    """The option for operators' own workloads."""
    parser.add_argument(
        "--workloads",
        metavar="DIR",
        action="append",
        help="own workloads and suites beside the shipped ones ($COMPATGATE_WORKLOADS); repeatable",
    )


def add_format(parser: argparse.ArgumentParser) -> None:
    """Text for people or JSON for programs."""
    parser.add_argument("--format", choices=("text", "json"), default="text")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as what they hold, but the last."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head) - 1)]
    lines = []
    for row in (head, *rows):
        cells = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)]
        lines.append("  ".join([*cells, row[-1]]).rstrip())
    return "\n".join(lines)
