"""Run ``compatgate audit``: read and verify the audit log and the decisions; delete old months."""

from __future__ import annotations

import argparse
from contextlib import closing
from datetime import date

from msgspec import to_builtins

from compatgate.cli.commands import Body, Group, Row, members, time_of
from compatgate.documents.quantities import parse_duration
from compatgate.errors import BadInput
from compatgate.kit import clock
from compatgate.kit.cli.options import DATABASE, FORMAT
from compatgate.kit.cli.output import print_json
from compatgate.kit.cli.usage import action


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
    from compatgate.service.recovery.chain.retention import Retention
    from compatgate.service.recovery.chain.verification import AuditChain

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
            status=lambda report: 0 if report["ok"] else 1,
            summary="recompute the chain; exit with 1 if a record was changed (scope admin)",
        ),
        "delete": _delete,
        "list": Row(
            "list_audit",
            columns={
                "seq": "seq",
                "at": lambda link: link["at"][:19] + "Z",
                **members("actor", "action", "subject"),
                "hash": lambda link: link["hash"][:12],
            },
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
            {
                "decided": time_of("decided_at"),
                "verdict": "outcome",
                **members("allowed", "target"),
                "revision": "matrix_revision",
                **members("asked_by", "source"),
                "id": "verdict_id",
                "image": "image",
            },
        ),
    }
)
