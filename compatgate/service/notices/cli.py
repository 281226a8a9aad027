"""Run ``compatgate notices``: list, snooze, resolve and reopen incidents."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from compatgate.core.incidents import KINDS, IncidentState
from compatgate.kit.cli.options import add_format, add_limit
from compatgate.kit.cli.output import format_json_time, print_json, print_table
from compatgate.service.gate_client import Body, Operations, add_place, ask, ask_all, run_action

if TYPE_CHECKING:
    import argparse

    from compatgate.client import Client

_EXAMPLES = """\
examples:
  compatgate notices incidents
  compatgate notices snooze 12 --for 24h --comment 'new nodes on Monday'
  compatgate notices resolve 12 --comment 'drained the nodes'
"""
_WHO = "command line"
_HEAD = ("id", "level", "kind", "count", "since", "last seen", "owner", "message")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command and its actions."""
    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listed = actions.add_parser("incidents", help="list incidents, newest first")
    listed.add_argument("--kind", choices=KINDS, help="only incidents of this kind")
    listed.add_argument(
        "--state",
        choices=get_args(IncidentState),
        help="only incidents in this state (default: open)",
    )
    listed.add_argument("--snoozed", action="store_true", help="list snoozed incidents instead")
    listed.add_argument(
        "--owner", metavar="NAME", help="only incidents that affect objects of this owner"
    )
    add_limit(listed)
    shown = actions.add_parser("show", help="show an incident with every affected object")
    snooze = actions.add_parser("snooze", help="hide an open incident for a while")
    snooze.add_argument(
        "--for",
        dest="duration",
        default="24h",
        metavar="DURATION",
        help="duration, at most 90d (default: 24h)",
    )
    snooze.add_argument("--comment", help="comment, shown with the incident")
    resolve = actions.add_parser("resolve", help="resolve an open incident")
    resolve.add_argument("--comment", required=True, help="comment, for example the fix")
    reopen = actions.add_parser("reopen", help="reopen a snoozed or resolved incident")
    reopen.add_argument("--comment", help="comment, kept in the audit log")
    for one in (shown, snooze, resolve, reopen):
        one.add_argument("id", type=int, metavar="ID", help="number of the incident")
    add_place(listed, shown, snooze, resolve, reopen)
    add_format(listed, shown, snooze, resolve, reopen)


def run(args: argparse.Namespace) -> int:
    """Run the chosen action."""
    actions = {
        "incidents": _list,
        "show": _show,
        "snooze": _snooze,
        "resolve": _resolve,
        "reopen": _reopen,
    }
    return run_action(args, actions, name=_WHO)


def _list(args: argparse.Namespace, gate: Client) -> int:
    state: IncidentState = args.state or "open"
    rows = ask_all(
        gate,
        args.limit,
        Operations.list_incidents,
        kind=args.kind,
        state=state,
        snoozed=args.snoozed if state == "open" else None,
        owner=args.owner,
    )
    if args.format == "json":
        print_json(rows)
        return 0
    table = [
        (
            *(one[name] for name in ("id", "level", "kind", "count")),
            format_json_time(one["first_seen"]),
            format_json_time(one["last_seen"]),
            ",".join(one["owners"]),
            one["message"],
        )
        for one in rows
    ]
    print_table(_HEAD, table, empty="nothing needs attention")
    return 0


def _show(args: argparse.Namespace, gate: Client) -> int:
    one = ask(gate, Operations.show_incident, args.id)
    if args.format == "json":
        print_json(one)
        return 0
    print(f"{one['id']} [{one['level']}] {one['title']}: {one['message']}")
    state = "snoozed" if one["snoozed"] else one["state"]
    first, last = format_json_time(one["first_seen"]), format_json_time(one["last_seen"])
    print(f"{state}; first seen {first}, last seen {last}")
    for member in one["members"]:
        owner = f" (owner: {member['owner']})" if member["owner"] else ""
        print(f"  {member['name']} {member['note']}{owner}")
    return 0


def _snooze(args: argparse.Namespace, gate: Client) -> int:
    operation = Operations.snooze_incident
    one = ask(gate, operation, args.id, duration=args.duration, comment=args.comment)
    return _print_done(args, one, f"snoozed until {format_json_time(one['snoozed_until'])}")


def _resolve(args: argparse.Namespace, gate: Client) -> int:
    one = ask(gate, Operations.resolve_incident, args.id, comment=args.comment)
    return _print_done(args, one, "resolved")


def _reopen(args: argparse.Namespace, gate: Client) -> int:
    one = ask(gate, Operations.reopen_incident, args.id, comment=args.comment)
    return _print_done(args, one, "open again")


def _print_done(args: argparse.Namespace, one: Body, done: str) -> int:
    if args.format == "json":
        print_json(one)
    else:
        print(f"{one['id']} is {done}")
    return 0
