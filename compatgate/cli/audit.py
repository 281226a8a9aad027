"""Run ``compatgate audit``, ``notices`` and ``report``: log, decisions, incidents, the past."""

from __future__ import annotations

import argparse
from contextlib import closing
from datetime import date

from msgspec import to_builtins

from compatgate.cli.commands import Body, Group, Row, columns
from compatgate.documents.quantities import parse_duration
from compatgate.errors import BadInput
from compatgate.kit import clock
from compatgate.kit.cli.options import DATABASE, FORMAT
from compatgate.kit.cli.output import format_json_time, print_json
from compatgate.kit.cli.usage import action
from compatgate.service.attention.report_formats import render_html, render_markdown

_WHO = "command line"


def _format_report(report: Body) -> str:
    began = f"from link {report['since'] + 1}" if report["since"] else "everything"
    lines = [
        f"{'intact' if report['ok'] else 'NOT INTACT'}: {report['links']} links,"
        f" {report['revisions']} revisions, {report['decisions']} decisions,"
        f" {report['tokens']} tokens",
        f"read {began}: {report['checked_links']} links, {report['checked_decisions']} decisions",
        *(f"  {problem}" for problem in report["problems"]),
        f"head {report['head']}",
    ]
    return "\n".join(lines)


@action(
    "verify the audit log, and delete the decisions of past months; back up first",
    """\
--older-than DURATION (required)  delete months that ended at least this long ago, for example 400d
| --before MONTH  delete months before this month, for example 2026-10
""",
    DATABASE,
    FORMAT,
)
def _delete(args: argparse.Namespace) -> int:
    from compatgate.kit.database.opening import open_database
    from compatgate.service.recovery.retention import Retention
    from compatgate.service.recovery.verification import AuditChain

    if args.older_than:
        age = parse_duration(args.older_than, field="--older-than")
        before = (clock.now() - age).date().replace(day=1)
    else:
        try:
            before = date.fromisoformat(f"{args.before}-01")
        except ValueError:
            hint = "for example 2026-10"
            raise BadInput("not a month", field="--before", value=args.before, hint=hint) from None
    done = []
    with closing(open_database(args.database)) as database:
        retention = Retention(database, AuditChain(database).verify, "compatgate audit delete")
        for month in retention.delete(before):
            done.append(month)
            if args.format != "json":
                print(f"{month.month}: {month.decisions} decisions deleted, link {month.link}")
    if args.format == "json":
        print_json(to_builtins(done))
    elif not done:
        print(f"no decisions before {before} are left to delete")
    return 0


run = Group(
    {
        "verify": Row(
            "verify_audit",
            text=_format_report,
            status=lambda report, _: 0 if report["ok"] else 1,
            summary="recompute the chain; exit with 1 if a record was changed (scope admin)",
        ),
        "delete": _delete,
        "list": Row(
            "list_audit",
            columns=columns(
                *("seq", "at", "actor", "action", "subject"),
                ("hash", lambda link: link["hash"][:12]),
            ),
            empty="nothing yet",
        ),
        "decisions": Row(
            "list_decisions",
            """\
--since TIME
--until TIME
--target NAME
--verdict {pass,warn,fail,unknown}
--image REF
""",
            columns(
                *("decided: decided_at", "verdict: outcome", "allowed", "target"),
                *("revision: matrix_revision", "asked_by", "source", "id: verdict_id", "image"),
            ),
        ),
    }
)


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


run_notices = Group(
    {
        "incidents": Row(
            "list_incidents",
            """\
--state {}  only incidents in this state (default: open)
--snoozed   list snoozed incidents instead
...
""",
            columns(
                *("id", "level", "kind", "count", "since: first_seen", "last_seen"),
                *("owner: owners", "message"),
            ),
            "nothing needs attention",
            who=_WHO,
            values=lambda args: {
                "state": args.state or "open",
                "snoozed": args.snoozed if args.state in (None, "open") else None,
            },
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
        "reopen": Row("reopen_incident", text="{id} is open again", who=_WHO),
    }
)


REPORT = Row(
    "report_all",
    """\
name: --target NAME  target to report on (default: all)
since: --from TIME   start date or time, UTC (default: 7 days before the end)
until: --to TIME     end date or time, UTC (default: now)
""",
    show="report",
    text={"markdown": render_markdown, "html": render_html},
    form="--format {markdown,html,json} = markdown  output format",
    epilog="""\
examples:
  compatgate report --target prod-a100 --from 2026-11-02 --to 2026-11-03 > postmortem.md
  compatgate report --target prod-a100 --from 2026-11-02T09:00 --format html > postmortem.html
  compatgate report --from 2026-11-02 --to 2026-11-03
""",
)
