"""Run ``compatgate audit``: read, verify and archive the audit log and the decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatgate.kit.cli.commands import Option, Row, add_rows, find_row, time_of
from compatgate.kit.cli.options import add_database, add_format
from compatgate.kit.cli.output import print_json
from compatgate.service.gate_client import (
    Operations,
    add_place,
    ask,
    ask_all,
    gate_of,
    run_action,
    run_row,
)

if TYPE_CHECKING:
    import argparse
    from datetime import date

    from compatgate.client import Client

_EXAMPLES = """\
examples:
  compatgate audit list --action matrix. --since 2026-11-03
  compatgate audit decisions --target prod-a100 --since 2026-11-03 --until 2026-11-03
  compatgate audit verify --full
  compatgate audit archive --older-than 90d --to archives --drop
  compatgate audit verify --archive archives/decisions-2026-09.jsonl.zst
"""
_VERDICTS = ("pass", "warn", "fail", "unknown")
_SINCE = Option("since", "", "first day, for example 2026-11-03", "TIME")
_UNTIL = Option("until", "", "end time, for example 2026-11-03T18:00:00Z", "TIME")
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
_ARCHIVE_HELP = "write the decisions of past months to files, one for each month, and remove them"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command and its actions."""
    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    verify = actions.add_parser(
        "verify",
        help="recompute the chain; exit with 1 if a record was changed; a server needs a token"
        " with the scope admin",
    )
    verify.add_argument(
        "--head", metavar="HASH", help="hash stored earlier; the chain must still contain it"
    )
    verify.add_argument(
        "--full",
        action="store_true",
        help="read everything (default: records since the last successful verification)",
    )
    verify.add_argument(
        "--archive",
        metavar="FILE",
        help="verify only this file of `audit archive`; with --server or --database, also check"
        " the link that seals the file",
    )
    _add_archive(actions.add_parser("archive", help=_ARCHIVE_HELP))
    add_place(verify)
    add_format(verify)
    add_rows(actions, ROWS)


def _add_archive(parser: argparse.ArgumentParser) -> None:
    age = parser.add_mutually_exclusive_group(required=True)
    age.add_argument(
        "--older-than",
        metavar="DURATION",
        help="archive months that ended at least this long ago, for example 90d",
    )
    age.add_argument(
        "--before", metavar="MONTH", help="archive months before this month, for example 2026-10"
    )
    parser.add_argument("--to", required=True, metavar="DIR", help="existing folder for the files")
    parser.add_argument(
        "--drop",
        action="store_true",
        help="remove archived decisions from the database, including those archived earlier",
    )
    add_database(parser)
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Run the chosen action.

    Raises:
        BadInput: an option is malformed, or a file is no archive.
        Unavailable: the database does not answer, or a file cannot be written.
    """
    if args.action == "archive":
        return _archive(args)
    if args.action == "verify" and args.archive:
        return _verify_archive(args)
    if args.action == "verify":
        return run_action(args, {"verify": _verify})
    return run_row(args, find_row(ROWS, args.action))


def _verify(args: argparse.Namespace, gate: Client) -> int:
    report = ask(gate, Operations.verify_audit, head=args.head, full=args.full or None)
    if args.format == "json":
        print_json(report)
    else:
        print(
            f"{'intact' if report['ok'] else 'NOT INTACT'}: {report['links']} links,"
            f" {report['revisions']} revisions, {report['decisions']} decisions,"
            f" {report['tokens']} tokens"
        )
        began = f"from link {report['since'] + 1}" if report["since"] else "everything"
        print(
            f"read {began}: {report['checked_links']} links,"
            f" {report['checked_decisions']} decisions"
        )
        for problem in report["problems"]:
            print(f"  {problem}")
        print(f"head {report['head']}")
    return 0 if report["ok"] else 1


def _archive(args: argparse.Namespace) -> int:
    from pathlib import Path

    from compatgate.errors import BadInput
    from compatgate.kit.database.opening import open_database
    from compatgate.service.audit.retention import Retention

    folder = Path(args.to)
    if not folder.is_dir():
        raise BadInput("not a folder", field="--to", value=args.to, hint="create the folder first")
    before = _first_day(args)
    database = open_database(args.database)
    done = []
    try:
        for one in Retention(database, "compatgate audit archive").archive(
            before, folder, drop=args.drop
        ):
            done.append({"path": one.path, "link": one.link, "removed": one.removed}
                        | one.report.to_json())  # fmt: skip
            if args.format != "json":
                print(_archived_line(done[-1]))
    finally:
        database.close()
    if args.format == "json":
        print_json(done)
    elif not done:
        print(f"no decisions before {before} are left to archive")
    return 0


def _archived_line(one: dict[str, object]) -> str:
    removed = f", {one['removed']} removed from the database" if one["removed"] else ""
    return (
        f"{one['path']}: {one['decisions']} decisions and {one['verdicts']} verdicts{removed};"
        f" sealed by link {one['link']}, SHA-256 {one['sha256']}"
    )


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


def _verify_archive(args: argparse.Namespace) -> int:
    """Verify an archive alone, and against the chain of a gate that the options name."""
    from pathlib import Path

    from compatgate.service.audit.archive import verify_archive

    report = verify_archive(Path(args.archive))
    problems = list(report.problems)
    seal = None
    if args.server or args.database:
        with gate_of(args) as gate:
            seal = _find_seal(gate, report.sha256)
        if not seal:
            problems.append("no link of the audit chain seals this file")
    if args.format == "json":
        print_json({**report.to_json(), "ok": not problems, "problems": problems, "link": seal})
    else:
        tail = report.tail
        state = "NOT INTACT" if problems else "intact"
        print(
            f"{state}: {report.head.month}, {tail.batches} batches, {tail.decisions} decisions,"
            f" {tail.verdicts} verdicts"
        )
        for problem in problems:
            print(f"  {problem}")
        print(f"SHA-256 {report.sha256}" + (f", sealed by link {seal}" if seal else ""))
    return 1 if problems else 0


def _find_seal(gate: Client, sha256: str) -> int:
    """Return the number of the audit link that seals an archive; 0: none does."""
    links = ask_all(gate, None, Operations.list_audit, action="decisions.archive")
    return next((link["seq"] for link in links if link["detail"]["sha256"] == sha256), 0)
