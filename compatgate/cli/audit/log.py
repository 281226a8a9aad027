"""Run ``compatgate audit``: read and verify the audit log and the decisions; delete old months."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatgate.cli.gate.opening import run_row
from compatgate.kit.cli.commands import Body, Option, Row, add_rows, find_row, time_of
from compatgate.kit.cli.options import add_database, add_format
from compatgate.kit.cli.output import print_json

if TYPE_CHECKING:
    import argparse
    from datetime import date

_EXAMPLES = """\
examples:
  compatgate audit list --action matrix. --since 2026-11-03
  compatgate audit decisions --target prod-a100 --since 2026-11-03 --until 2026-11-03
  compatgate audit verify --full
  compatgate audit delete --older-than 400d
"""
_VERDICTS = ("pass", "warn", "fail", "unknown")
_VERIFY_HELP = """\
recompute the chain; exit with 1 if a record was changed; a server needs a token with the scope \
admin"""
_FULL_HELP = "read everything (default: records since the last successful verification)"
_SINCE = Option("since", "", "first day, for example 2026-11-03", "TIME")
_UNTIL = Option("until", "", "end time, for example 2026-11-03T18:00:00Z", "TIME")


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


VERIFY = Row(
    "verify",
    "verify_audit",
    _VERIFY_HELP,
    options=(
        Option("head", "", "hash stored earlier; the chain must still contain it", "HASH"),
        Option("full", "", _FULL_HELP),
    ),
    text=_format_report,
    status=lambda report: 0 if report["ok"] else 1,
)
_ACTION_HELP = 'action, for example token.create, or a prefix such as "matrix."'
ROWS = (
    Row(
        "list",
        "list_audit",
        "list audit records, newest first",
        options=(
            Option("action", "", _ACTION_HELP, "WHAT"),
            Option("actor", "", "actor", "NAME"),
            *(_SINCE, _UNTIL),
        ),
        columns={
            "seq": "seq",
            "at": lambda link: link["at"][:19] + "Z",
            "actor": "actor",
            "action": "action",
            "subject": "subject",
            "hash": lambda link: link["hash"][:12],
        },
    ),
    Row(
        "decisions",
        "list_decisions",
        "list decisions, newest first",
        options=(
            Option("target", "", "target of the question", "NAME"),
            Option("verdict", "", "verdict", choices=_VERDICTS),
            Option("image", "", "image, exactly as written", "REF"),
            *(_SINCE, _UNTIL),
        ),
        columns={
            "decided": time_of("decided_at"),
            "verdict": "outcome",
            "allowed": "allowed",
            "target": "target",
            "revision": "matrix_revision",
            "asked by": "asked_by",
            "source": "source",
            "id": "verdict_id",
            "image": "image",
        },
        empty="no decisions",
    ),
)
_DELETE_HELP = "verify the audit log, and delete the decisions of past months; back up first"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command and its actions."""
    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    add_rows(actions, (VERIFY,))
    deleting = actions.add_parser("delete", help=_DELETE_HELP)
    age = deleting.add_mutually_exclusive_group(required=True)
    age.add_argument(
        "--older-than",
        metavar="DURATION",
        help="delete months that ended at least this long ago, for example 400d",
    )
    age.add_argument(
        "--before", metavar="MONTH", help="delete months before this month, for example 2026-10"
    )
    add_database(deleting)
    add_format(deleting)
    add_rows(actions, ROWS)


def run(args: argparse.Namespace) -> int:
    """Run the chosen action."""
    if args.action == "delete":
        return _delete(args)
    return run_row(args, find_row((VERIFY, *ROWS), args.action))


def _delete(args: argparse.Namespace) -> int:
    from msgspec import to_builtins

    from compatgate.kit.database.opening import open_database
    from compatgate.service.recovery.chain.retention import Retention
    from compatgate.service.recovery.chain.verification import AuditChain

    before = _first_day(args)
    database = open_database(args.database)
    done = []
    try:
        retention = Retention(database, AuditChain(database).verify, "compatgate audit delete")
        for month in retention.delete(before):
            done.append(month)
            if args.format != "json":
                print(f"{month.month}: {month.decisions} decisions deleted, link {month.link}")
    finally:
        database.close()
    if args.format == "json":
        print_json(to_builtins(done))
    elif not done:
        print(f"no decisions before {before} are left to delete")
    return 0


def _first_day(args: argparse.Namespace) -> date:
    """Return the first day of the oldest month that stays."""
    from datetime import date

    from compatgate.documents.quantities import parse_duration
    from compatgate.errors import BadInput
    from compatgate.kit import clock

    if args.older_than:
        age = parse_duration(args.older_than, field="--older-than")
        return (clock.now() - age).date().replace(day=1)
    try:
        return date.fromisoformat(f"{args.before}-01")
    except ValueError:
        raise BadInput(
            "not a month", field="--before", value=args.before, hint="for example 2026-10"
        ) from None
