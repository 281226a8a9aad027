"""Run ``compatgate notices`` and ``compatgate report``: incidents, and a target's past."""

from __future__ import annotations

import argparse

from compatgate.cli.commands import Body, Group, Row, members, time_of
from compatgate.cli.gate import Operations, gate_of
from compatgate.gate_client import ask
from compatgate.kit.cli.options import PLACE
from compatgate.kit.cli.output import format_json_time, print_answer
from compatgate.kit.cli.usage import command
from compatgate.kit.clock import parse_moment
from compatgate.service.attention.reports.formats import render_html, render_markdown

_WHO = "command line"


def _describe(one: Body) -> str:
    state = "snoozed" if one["snoozed"] else one["state"]
    first, last = format_json_time(one["first_seen"]), format_json_time(one["last_seen"])
    lines = [
        f"{one['id']} [{one['level']}] {one['title']}: {one['message']}",
        f"{state}; first seen {first}, last seen {last}",
    ]
    for member in one["members"]:
        owner = f" (owner: {member['owner']})" if member["owner"] else ""
        lines.append(f"  {member['name']} {member['note']}{owner}")
    return "\n".join(lines)


def _filter(args: argparse.Namespace) -> Body:
    """Without a state, list what is open and not snoozed."""
    state = args.state or "open"
    return {"state": state, "snoozed": args.snoozed if state == "open" else None}


run_notices = Group(
    {
        "incidents": Row(
            "list_incidents",
            """\
--state {}  only incidents in this state (default: open)
--snoozed   list snoozed incidents instead
...
""",
            {
                **members("id", "level", "kind", "count"),
                "since": time_of("first_seen"),
                "last seen": time_of("last_seen"),
                "owner": lambda one: ",".join(one["owners"]),
                "message": "message",
            },
            "nothing needs attention",
            who=_WHO,
            values=_filter,
        ),
        "show": Row("show_incident", text=_describe, who=_WHO),
        "snooze": Row(
            "snooze_incident",
            "ID\nduration: --for DURATION = 24h\n--comment COMMENT",
            text=lambda one: (
                f"{one['id']} is snoozed until {format_json_time(one['snoozed_until'])}"
            ),
            who=_WHO,
        ),
        "resolve": Row("resolve_incident", text="{id} is resolved", who=_WHO),
        "reopen": Row("reopen_incident", text="{id} is open again", who=_WHO),
    }
)


@command(
    """\
--target NAME       target to report on (default: all)
since: --from TIME  start date or time, UTC (default: 7 days before the end)
until: --to TIME    end date or time, UTC (default: now)
""",
    PLACE,
    "--format {markdown,html,json} = markdown  output format",
    epilog="""\
examples:
  compatgate report --target prod-a100 --from 2026-11-02 --to 2026-11-03 > postmortem.md
  compatgate report --target prod-a100 --from 2026-11-02T09:00 --format html > postmortem.html
  compatgate report --from 2026-11-02 --to 2026-11-03
""",
)
def run_report(args: argparse.Namespace) -> int:
    """Print the report."""
    since = args.since and parse_moment(args.since, field="--from")
    until = args.until and parse_moment(args.until, field="--to", end_of_day=True)
    with gate_of(args) as gate:
        if args.target:
            report = ask(gate, Operations.report, args.target, since=since, until=until)
        else:
            report = ask(gate, Operations.report_all, since=since, until=until)
    render = render_html if args.format == "html" else render_markdown
    return print_answer(args.format, report, lambda: render(report))
