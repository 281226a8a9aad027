"""Run ``compatgate report``: what happened on a target, and what would be answered today."""

from __future__ import annotations

import argparse

from compatgate.cli.gate.opening import Operations, gate_of
from compatgate.gate_client import ask
from compatgate.kit.cli.options import PLACE
from compatgate.kit.cli.output import print_json
from compatgate.kit.cli.usage import command
from compatgate.kit.clock import parse_moment
from compatgate.service.attention.reports.formats import render_html, render_markdown


@command(
    """\
--target NAME (required)  target to report on
since: --from TIME        start date or time, UTC (default: 7 days before the end)
until: --to TIME          end date or time, UTC (default: now)
""",
    PLACE,
    "--format {markdown,html,json} = markdown  output format",
    epilog="""\
examples:
  compatgate report --target prod-a100 --from 2026-11-02 --to 2026-11-03 > postmortem.md
  compatgate report --target prod-a100 --from 2026-11-02T09:00 --format html > postmortem.html
""",
)
def run(args: argparse.Namespace) -> int:
    """Print the report."""
    since = args.since and parse_moment(args.since, field="--from")
    until = args.until and parse_moment(args.until, field="--to", end_of_day=True)
    with gate_of(args) as gate:
        report = ask(gate, Operations.report, args.target, since=since, until=until)
    if args.format == "json":
        print_json(report)
        return 0

    print(render_html(report) if args.format == "html" else render_markdown(report))
    return 0
