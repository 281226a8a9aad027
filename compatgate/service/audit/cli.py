"""Run ``compatgate audit``: read and verify the audit log and the decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatgate.kit.cli.options import add_format, add_limit, read_moment
from compatgate.kit.cli.output import format_json_time, print_json, print_table
from compatgate.service.gate_client import add_place, ask, ask_all, run_action

if TYPE_CHECKING:
    import argparse

    from compatgate.client import Client

_EXAMPLES = """\
examples:
  compatgate audit list --action matrix. --since 2026-11-03
  compatgate audit decisions --target prod-a100 --since 2026-11-03 --until 2026-11-03
  compatgate audit verify --full
"""
_VERDICTS = ("pass", "warn", "fail", "unknown")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command and its actions."""
    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    verify = actions.add_parser(
        "verify",
        help="recompute the chain; exit status 1 when something was changed; a server asks for a"
        " token with the scope admin",
    )
    verify.add_argument(
        "--head", metavar="HASH", help="latest hash stored earlier; it must still be in the chain"
    )
    verify.add_argument(
        "--full",
        action="store_true",
        help="read everything; without it, what is new since the last verification that found"
        " everything in order",
    )
    shown = actions.add_parser("list", help="list audit records, newest first")
    shown.add_argument("--action", dest="what", help='such as token.create, or "matrix."')
    shown.add_argument("--actor", metavar="NAME", help="actor")
    shown.add_argument("--since", metavar="TIME", help="first day, for example 2026-11-03")
    shown.add_argument("--until", metavar="TIME", help="end time, for example 2026-11-03T18:00:00Z")
    add_limit(shown)
    decided = actions.add_parser("decisions", help="list decisions, newest first")
    decided.add_argument("--target", metavar="NAME", help="target of the question")
    decided.add_argument("--verdict", choices=_VERDICTS, help="verdict")
    decided.add_argument("--image", metavar="REF", help="image, exactly as written")
    decided.add_argument("--since", metavar="TIME", help="first day, for example 2026-11-03")
    decided.add_argument(
        "--until", metavar="TIME", help="end time, for example 2026-11-03T18:00:00Z"
    )
    add_limit(decided)
    add_place(verify, shown, decided)
    add_format(verify, shown, decided)


def run(args: argparse.Namespace) -> int:
    """Run the chosen action.

    Raises:
        Unavailable: the database does not answer.
    """
    return run_action(args, {"verify": _verify, "list": _list, "decisions": _decisions})


def _verify(args: argparse.Namespace, gate: Client) -> int:
    from compatgate.client.operations import Operations

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


def _list(args: argparse.Namespace, gate: Client) -> int:
    from compatgate.client.operations import Operations

    found = ask_all(
        gate,
        args.limit,
        Operations.list_audit,
        action=args.what,
        actor=args.actor,
        since=read_moment(args.since, "--since"),
        until=read_moment(args.until, "--until", end_of_day=True),
    )
    if args.format == "json":
        print_json(found)
        return 0
    rows = [
        (
            link["seq"],
            link["at"][:19] + "Z",
            link["actor"],
            link["action"],
            link["subject"],
            link["hash"][:12],
        )
        for link in found
    ]
    print_table(("seq", "at", "actor", "action", "subject", "hash"), rows, empty="nothing yet")
    return 0


def _decisions(args: argparse.Namespace, gate: Client) -> int:
    from compatgate.client.operations import Operations

    found = ask_all(
        gate,
        args.limit,
        Operations.list_decisions,
        target=args.target,
        verdict=args.verdict,
        image=args.image,
        since=read_moment(args.since, "--since"),
        until=read_moment(args.until, "--until", end_of_day=True),
    )
    if args.format == "json":
        print_json(found)
        return 0
    rows = [
        (
            format_json_time(row["decided_at"]),
            row["outcome"],
            "yes" if row["allowed"] else "no",
            row["target"],
            row["matrix_revision"],
            row["asked_by"],
            row["source"],
            row["verdict_id"],
            row["image"],
        )
        for row in found
    ]
    head = (
        *("decided", "verdict", "allowed", "target", "revision"),
        *("asked by", "source", "id", "image"),
    )
    print_table(head, rows, empty="no decisions")
    return 0
