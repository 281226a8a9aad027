"""Run ``compatgate notices``: list, snooze, resolve and reopen incidents."""

from __future__ import annotations

import argparse

from compatgate.cli.commands import Body, Group, Row, time_of
from compatgate.kit.cli.output import format_json_time

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
    return {"state": state, "snoozed": (args.snoozed or None) if state == "open" else None}


run = Group(
    (
        Row(
            "incidents",
            "list_incidents",
            "list incidents, newest first",
            """\
--kind {}      only incidents of this kind
--state {}     only incidents in this state (default: open)
--snoozed      list snoozed incidents instead
--owner NAME   only incidents that affect objects of this owner
""",
            {
                **{name: name for name in ("id", "level", "kind", "count")},
                "since": time_of("first_seen"),
                "last seen": time_of("last_seen"),
                "owner": lambda one: ",".join(one["owners"]),
                "message": "message",
            },
            "nothing needs attention",
            who=_WHO,
            values=_filter,
        ),
        Row(
            "show",
            "show_incident",
            "show an incident with every affected object",
            "ID  number of the incident",
            text=_describe,
            who=_WHO,
        ),
        Row(
            "snooze",
            "snooze_incident",
            "hide an open incident for a while",
            """\
ID                 number of the incident
duration: --for DURATION = 24h
    duration, at most 90d (default: 24h)
--comment COMMENT  comment, shown with the incident
""",
            text=lambda one: (
                f"{one['id']} is snoozed until {format_json_time(one['snoozed_until'])}"
            ),
            who=_WHO,
        ),
        Row(
            "resolve",
            "resolve_incident",
            "resolve an open incident",
            """\
ID                 number of the incident
--comment COMMENT  comment, for example the fix
""",
            text=lambda one: f"{one['id']} is resolved",
            who=_WHO,
        ),
        Row(
            "reopen",
            "reopen_incident",
            "reopen a snoozed or resolved incident",
            """\
ID                 number of the incident
--comment COMMENT  comment, kept in the audit log
""",
            text=lambda one: f"{one['id']} is open again",
            who=_WHO,
        ),
    ),
    epilog="""\
examples:
  compatgate notices incidents
  compatgate notices snooze 12 --for 24h --comment 'new nodes on Monday'
  compatgate notices resolve 12 --comment 'drained the nodes'
""",
)
