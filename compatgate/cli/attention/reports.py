"""Run ``compatgate report``: what happened on targets, and what would be answered today."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatgate.cli.gate.opening import Operations, add_place, gate_of
from compatgate.gate_client import ask

if TYPE_CHECKING:
    import argparse

_EXAMPLES = """\
examples:
  compatgate report --target prod-a100 --from 2026-11-02 --to 2026-11-03 > postmortem.md
  compatgate report --target prod-a100 --from 2026-11-02T09:00 --format html > postmortem.html
  compatgate report --from 2026-11-02 --to 2026-11-03
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.epilog = _EXAMPLES
    parser.add_argument("--target", metavar="NAME", help="target to report on (default: all)")
    parser.add_argument(
        "--from",
        dest="since",
        metavar="TIME",
        help="start date or time, UTC (default: 7 days before the end)",
    )
    parser.add_argument(
        "--to", dest="until", metavar="TIME", help="end date or time, UTC (default: now)"
    )
    add_place(parser)
    parser.add_argument(
        "--format",
        choices=("markdown", "html", "json"),
        default="markdown",
        help="output format (default: markdown)",
    )


def run(args: argparse.Namespace) -> int:
    """Print the report."""
    from compatgate.kit.clock import parse_moment

    since = args.since and parse_moment(args.since, field="--from")
    until = args.until and parse_moment(args.until, field="--to", end_of_day=True)
    with gate_of(args) as gate:
        if args.target:
            report = ask(gate, Operations.report, args.target, since=since, until=until)
        else:
            report = ask(gate, Operations.report_all, since=since, until=until)
    if args.format == "json":
        from compatgate.kit.cli.output import print_json

        print_json(report)
        return 0
    from compatgate.service.attention.reports.formats import render_html, render_markdown

    print(render_html(report) if args.format == "html" else render_markdown(report))
    return 0
