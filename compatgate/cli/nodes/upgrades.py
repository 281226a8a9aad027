"""Run ``compatgate upgrade``: propose upgrades, start their waves, stop and roll back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from compatgate.cli.gate.opening import Operations, add_place, gate_of, run_row
from compatgate.gate_client import ask
from compatgate.kit.cli.commands import Body, Cell, Option, Row, add_rows, find_row, time_of
from compatgate.kit.cli.options import add_authorship, add_format, reason_of
from compatgate.kit.cli.output import format_json_time, format_table, print_json
from compatgate.kit.cli.terminal import strip_controls

if TYPE_CHECKING:
    import argparse

EXIT = {"start": 0, "done": 0, "roll back": 1, "wait": 3}
"""Exit status by answer; ``done`` of a wave means that nothing is left to do."""
_EXAMPLES = """\
examples:
  compatgate upgrade create prod-580 --target prod-a100 --driver 580.95.05 --reason 'Xid 119'
  compatgate upgrade approve prod-580
  compatgate upgrade may-start prod-580 --wave 1 --by pipeline-4711
  compatgate upgrade show prod-580
  compatgate upgrade stop prod-580 --reason 'jobs hang on the first rack'
  compatgate upgrade freeze year-end --from 2026-12-18 --to 2027-01-04 --owner team-sre

exit status of may-start: 0 start (or done: nothing is left of the wave), 1 roll back, 2 bad input,
3 wait, or no answer.
"""
_WAVE_HEAD = (
    "WAVE", "ANSWER", "NODES", "UPGRADED", "EXCLUDED", "DOMAINS", "STARTED", "FINISHED",
)  # fmt: skip
_NAME = Option("name", metavar="UPGRADE", help="name of the upgrade")
_FREEZE = Option("name", metavar="FREEZE", help="name of the freeze")
_BY = "person or tool that would roll the wave (default: the caller's name)"
_PATTERN = "target or pattern; may be repeated (default: every target)"


def _add_author(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--author", metavar="NAME", help="author of the change (default: your user name)"
    )


def _add_nodes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("nodes", nargs="+", metavar="NODE", help="CLUSTER/NAME, or a unique name")


def _drivers(good: Body) -> str:
    return ", ".join(f"{pool} {driver}" for pool, driver in good["drivers"].items())


def _format_upgrade(upgrade: Body) -> str:
    return strip_controls("\n".join(_list_lines(upgrade)))


def _list_lines(upgrade: Body) -> Iterator[str]:
    """Yield an upgrade with its waves, requirements and history, line by line."""
    state = f"{upgrade['state']}: {upgrade['why']}" if upgrade["why"] else upgrade["state"]
    yield f"{upgrade['name']}: driver {upgrade['driver']} on {upgrade['target']}, {state}"
    yield f"proposed by {upgrade['author']}: {upgrade['reason']}"
    yield upgrade["plan"]["summary"]
    if not upgrade["health"]:
        yield "without health reports: GPU errors on upgraded nodes go unnoticed"
    waves = upgrade["wave_list"]
    yield format_table(_WAVE_HEAD, [[*map(str, _wave_row(wave))] for wave in waves])
    for wave in waves:
        if wave["answer"] in ("wait", "roll back"):
            for reason in wave["reasons"]:
                yield f"wave {wave['number']}, {wave['answer']}: {reason}"
    for need in upgrade["needs"]:
        yield f"{'required' if need['required'] else 'advised'}: {need['text']}"
    for rate in upgrade["rates"]:
        yield f"{'ALARM ' if rate['alarm'] else ''}{rate['text']}"
    for event in upgrade["events"]:
        which = f" wave {event['wave']}" if event["wave"] else ""
        text = f": {event['text']}" if event["text"] else ""
        what = f"{event['actor'] or 'compatgate'}: {event['action']}{which}{text}"
        yield f"{format_json_time(event['at'])}  {what}"


def _wave_row(wave: Body) -> tuple[object, ...]:
    domains = wave["domains"]
    more = f" and {len(domains) - 2} more" if len(domains) > 2 else ""
    return (
        wave["number"],
        wave["answer"],
        wave["nodes"],
        wave["upgraded"],
        wave["left_out"],
        ", ".join(one["name"] for one in domains[:2]) + more,
        format_json_time(wave["started_at"]) or "-",
        format_json_time(wave["finished_at"]) or "-",
    )


def _format_answer(answer: Body) -> str:
    """Return whether a wave may start, line by line."""
    lines = [f"{answer['answer'].upper()}: {reason}" for reason in answer["reasons"]]
    if answer["answer"] == "start":
        lines += answer["nodes"]
        if answer["held_until"]:
            until = format_json_time(answer["held_until"])
            lines.append(f"held for {answer['holder']} until {until}; ask again before")
    if good := answer["known_good"]:
        lines.append(f"known good: revision {good['revision']}, drivers {_drivers(good)}")
    return strip_controls("\n".join(lines))


def _change(action: str, operation: str, text: str, **more: Any) -> Row:
    about: dict[str, Any] = {"text": _format_upgrade, "reason": f"upgrade {action} {{name}}"}
    return Row(action, operation, text, (_NAME,), **about | more)


_UPGRADES: dict[str, Cell] = {
    "upgrade": "name",
    "target": "target",
    "driver": "driver",
    "state": "state",
    "waves": lambda one: f"{one['finished']}/{one['waves']}",
    "nodes": "nodes",
    "author": "author",
    "made": time_of("made_at"),
    "why": "why",
}
_FREEZES: dict[str, Cell] = {
    "freeze": "name",
    "from": time_of("since"),
    "to": time_of("until"),
    "targets": "targets",
    "owner": "owner",
    "reason": "reason",
}


def _format_freeze(freeze: Body) -> str:
    since, until = format_json_time(freeze["since"]), format_json_time(freeze["until"])
    where = ", ".join(freeze["targets"])
    text = f"{freeze['name']}: {since} to {until} on {where}; {freeze['owner']}: {freeze['reason']}"
    return strip_controls(text)


ROWS = (
    Row(
        "list",
        "list_upgrades",
        "list upgrades, newest first",
        (
            Option("state", help="only this state"),
            Option("target", help="only upgrades of this target", metavar="NAME"),
        ),
        _UPGRADES,
        "no upgrades",
    ),
    Row(
        "show",
        "show_upgrade",
        "show waves, open requirements and history",
        (_NAME,),
        text=_format_upgrade,
    ),
    Row(
        "may-start",
        "may_start",
        "start a wave if allowed, and hold it for the caller",
        (
            _NAME,
            Option("wave", help="wave number (default: the next wave)", metavar="N"),
            Option("by", help=_BY, metavar="NAME"),
            Option("dry_run"),
        ),
        text=_format_answer,
        status=lambda answer: EXIT[answer["answer"]],
        extend=_add_author,
    ),
    _change(
        "approve",
        "approve_upgrade",
        "approve another person's upgrade",
        reason="",
        extend=_add_author,
    ),
    _change("retract", "retract_upgrade", "withdraw your approval", reason="", extend=_add_author),
    _change("stop", "stop_upgrade", "hold every wave until someone resumes the upgrade"),
    _change("resume", "resume_upgrade", "resume a stopped upgrade"),
    _change(
        "roll-back",
        "roll_back_upgrade",
        "end an upgrade; every wave must return to the former driver",
    ),
    _change("leave-out", "leave_out_nodes", "exclude nodes from an upgrade", extend=_add_nodes),
    Row(
        "freeze",
        "set_freeze",
        "create or replace a freeze: a period in which no wave starts",
        (
            _FREEZE,
            Option("since", "--from", "start of the freeze", "TIME"),
            Option("until", "--to", "end of the freeze", "TIME"),
            Option("owner", help="owner of the freeze", metavar="NAME"),
            Option("targets", "--target", _PATTERN, "PATTERN"),
        ),
        text=_format_freeze,
        reason="freeze {name}",
    ),
    Row(
        "unfreeze",
        "delete_freeze",
        "delete a freeze",
        (_FREEZE,),
        text=_format_freeze,
        reason="unfreeze {name}",
    ),
    Row(
        "freezes",
        "list_freezes",
        "list freezes",
        (
            Option("target", help="only freezes that hold waves of this target", metavar="NAME"),
            Option("ended"),
        ),
        _FREEZES,
        "no freezes",
    ),
    Row(
        "known-good",
        "list_known_good",
        "show the known-good state that a rollback returns to",
        (),
        {
            "target": "target",
            "revision": "revision",
            "drivers": _drivers,
            "upgrade": "upgrade",
            "marked": time_of("marked_at"),
        },
        "no known-good states",
    ),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command and its actions."""
    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    add_rows(actions, ROWS)
    made = actions.add_parser("create", help="propose an upgrade, with waves from its plan")
    add = made.add_argument
    add("name", metavar="UPGRADE", help="name of the upgrade")
    add("--target", required=True, metavar="NAME", help="target to upgrade")
    driver = "driver release, or a branch for its newest release"
    add("--driver", required=True, metavar="VERSION", help=driver)
    add("--pool", metavar="NAME", help="only this pool (default: every pool)")
    add("--soak", default="24h", metavar="DURATION", help="time between waves (default: 24h)")
    health = "do not wait for health reports of upgraded nodes; GPU errors go unnoticed"
    add("--without-health", action="store_true", help=health)
    many: dict[str, Any] = {"action": "append", "default": []}
    add("--accept", metavar="ENTRY", help="entry that the upgrade may retire", **many)
    label = "node label whose value names a rack (default: known topology labels)"
    add("--rack-label", metavar="LABEL", help=label, **many)
    add_authorship(made)
    add_place(made)
    add_format(made)


def run(args: argparse.Namespace) -> int:
    """Run the chosen action."""
    if args.action == "create":
        return _create(args)
    more = {"nodes": args.nodes} if args.action == "leave-out" else {}
    return run_row(args, find_row(ROWS, args.action), **more)


def _create(args: argparse.Namespace) -> int:
    body = {
        "name": args.name,
        "target": args.target,
        "driver": args.driver,
        "pool": args.pool,
        "soak": args.soak,
        "health": not args.without_health,
        "accepts": args.accept,
        "rack_labels": args.rack_label,
    }
    reason = reason_of(args, f"upgrade {args.target} to driver {args.driver}")
    with gate_of(args) as gate:
        made = ask(gate, Operations.create_upgrade, body, reason=reason)
    if args.format == "json":
        print_json(made)
    else:
        print(_format_upgrade(made))
    return 0
