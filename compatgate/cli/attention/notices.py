"""Run ``compatgate notices``: list, snooze, resolve and reopen incidents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatgate.cli.gate.opening import run_row
from compatgate.gate_client import Body
from compatgate.kit.cli.commands import Option, Row, add_rows, find_row, time_of
from compatgate.kit.cli.output import format_json_time

if TYPE_CHECKING:
    import argparse


_EXAMPLES = """\
examples:
  compatgate notices incidents
  compatgate notices snooze 12 --for 24h --comment 'new nodes on Monday'
  compatgate notices resolve 12 --comment 'drained the nodes'
"""
_WHO = "command line"
_ID = Option("id", metavar="ID", help="number of the incident")


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


ROWS = (
    Row(
        "incidents",
        "list_incidents",
        "list incidents, newest first",
        options=(
            Option("kind", help="only incidents of this kind"),
            Option("state", help="only incidents in this state (default: open)"),
            Option("snoozed", help="list snoozed incidents instead", form="switch"),
            Option(
                "owner", help="only incidents that affect objects of this owner", metavar="NAME"
            ),
        ),
        columns={
            **{name: name for name in ("id", "level", "kind", "count")},
            "since": time_of("first_seen"),
            "last seen": time_of("last_seen"),
            "owner": lambda one: ",".join(one["owners"]),
            "message": "message",
        },
        empty="nothing needs attention",
    ),
    Row(
        "show",
        "show_incident",
        "show an incident with every affected object",
        options=(_ID,),
        text=_describe,
    ),
    Row(
        "snooze",
        "snooze_incident",
        "hide an open incident for a while",
        options=(
            _ID,
            Option("duration", "--for", "duration, at most 90d (default: 24h)", "DURATION"),
            Option("comment", help="comment, shown with the incident"),
        ),
        text=lambda one: f"{one['id']} is snoozed until {format_json_time(one['snoozed_until'])}",
        extend=lambda parser: parser.set_defaults(argument_duration="24h"),
    ),
    Row(
        "resolve",
        "resolve_incident",
        "resolve an open incident",
        options=(_ID, Option("comment", help="comment, for example the fix")),
        text=lambda one: f"{one['id']} is resolved",
    ),
    Row(
        "reopen",
        "reopen_incident",
        "reopen a snoozed or resolved incident",
        options=(_ID, Option("comment", help="comment, kept in the audit log")),
        text=lambda one: f"{one['id']} is open again",
    ),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command and its actions."""
    parser.epilog = _EXAMPLES
    add_rows(parser.add_subparsers(dest="action", required=True, metavar="ACTION"), ROWS)


def run(args: argparse.Namespace) -> int:
    """Run the chosen action; without a state, list what is open and not snoozed."""
    row = find_row(ROWS, args.action)
    if args.action != "incidents":
        return run_row(args, row, name=_WHO)
    state = args.argument_state or "open"
    snoozed = args.argument_snoozed if state == "open" else None
    return run_row(args, row, name=_WHO, state=state, snoozed=snoozed)
