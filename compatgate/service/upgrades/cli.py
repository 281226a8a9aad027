"""Run ``compatgate upgrade``: propose upgrades, start their waves, stop and roll back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatgate.kit.cli.options import add_authorship, add_format, add_limit, reason_of
from compatgate.kit.cli.output import format_json_time, print_json, print_list, print_table
from compatgate.kit.cli.terminal import strip_controls
from compatgate.service.gate_client import Body, Operations, add_place, ask, ask_all, run_action

if TYPE_CHECKING:
    import argparse

    from compatgate.client import Client

STATES = ("proposed", "rolling", "stopped", "rolled back", "done")
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command and its actions."""
    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    found = [*_add_upgrades(actions), *_add_freezes(actions)]
    add_place(*found)
    add_format(*found)


def _add_upgrades(actions: Any) -> list[argparse.ArgumentParser]:
    made = _add_create(actions)
    listed = actions.add_parser("list", help="list upgrades, newest first")
    listed.add_argument("--state", choices=STATES, help="only this state")
    listed.add_argument("--target", metavar="NAME", help="only upgrades of this target")
    add_limit(listed)
    shown = actions.add_parser("show", help="show waves, open requirements and history")
    decided = _add_decisions(actions)
    stopped = actions.add_parser("stop", help="hold every wave until someone resumes the upgrade")
    resumed = actions.add_parser("resume", help="resume a stopped upgrade")
    rolled = actions.add_parser(
        "roll-back", help="end an upgrade; every wave must return to the former driver"
    )
    left = actions.add_parser("leave-out", help="exclude nodes from an upgrade")
    for one in (made, stopped, resumed, rolled, left):
        add_authorship(one)
    every = [made, shown, *decided, stopped, resumed, rolled, left]
    for one in every:
        one.add_argument("name", metavar="UPGRADE", help="name of the upgrade")
    left.add_argument("nodes", nargs="+", metavar="NODE", help="CLUSTER/NAME, or a unique name")
    return [*every, listed]


def _add_create(actions: Any) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = actions.add_parser(
        "create", help="propose an upgrade, with waves from its plan"
    )
    made.add_argument("--target", required=True, metavar="NAME", help="target to upgrade")
    made.add_argument(
        "--driver",
        required=True,
        metavar="VERSION",
        help="driver release, or a branch for its newest release",
    )
    made.add_argument("--pool", metavar="NAME", help="only this pool (default: every pool)")
    made.add_argument(
        "--soak", default="24h", metavar="DURATION", help="time between waves (default: 24h)"
    )
    made.add_argument(
        "--without-health",
        action="store_true",
        help="do not wait for health reports of upgraded nodes; GPU errors go unnoticed",
    )
    made.add_argument(
        "--accept",
        action="append",
        default=[],
        metavar="ENTRY",
        help="entry that the upgrade may retire",
    )
    made.add_argument(
        "--rack-label",
        action="append",
        default=[],
        metavar="LABEL",
        help="node label whose value names a rack (default: known topology labels)",
    )
    return made


def _add_decisions(actions: Any) -> tuple[argparse.ArgumentParser, ...]:
    """Add what starts a wave, and what approves an upgrade."""
    asked = actions.add_parser(
        "may-start", help="start a wave if allowed, and hold it for the caller"
    )
    asked.add_argument("--wave", type=int, metavar="N", help="wave number (default: the next wave)")
    asked.add_argument(
        "--by",
        metavar="NAME",
        help="person or tool that would roll the wave (default: the caller's name)",
    )
    asked.add_argument("--dry-run", action="store_true", help="report only; do not start the wave")
    agreed = actions.add_parser("approve", help="approve another person's upgrade")
    taken = actions.add_parser("retract", help="withdraw your approval")
    for one in (asked, agreed, taken):
        one.add_argument(
            "--author", metavar="NAME", help="author of the change (default: your user name)"
        )
    return asked, agreed, taken


def _add_freezes(actions: Any) -> list[argparse.ArgumentParser]:
    frozen = actions.add_parser(
        "freeze", help="create or replace a freeze: a period in which no wave starts"
    )
    frozen.add_argument(
        "--from", dest="since", required=True, metavar="TIME", help="start of the freeze"
    )
    frozen.add_argument(
        "--to", dest="until", required=True, metavar="TIME", help="end of the freeze"
    )
    frozen.add_argument("--owner", required=True, metavar="NAME", help="owner of the freeze")
    frozen.add_argument(
        "--target",
        action="append",
        default=[],
        metavar="PATTERN",
        help="target or pattern; may be repeated (default: every target)",
    )
    thawed = actions.add_parser("unfreeze", help="delete a freeze")
    for one in (frozen, thawed):
        add_authorship(one)
        one.add_argument("name", metavar="FREEZE", help="name of the freeze")
    listed = actions.add_parser("freezes", help="list freezes")
    listed.add_argument(
        "--target", metavar="NAME", help="only freezes that hold waves of this target"
    )
    listed.add_argument("--ended", action="store_true", help="include ended freezes")
    add_limit(listed)
    good = actions.add_parser(
        "known-good", help="show the known-good state that a rollback returns to"
    )
    add_limit(good)
    return [frozen, thawed, listed, good]


def run(args: argparse.Namespace) -> int:
    """Run the chosen action.

    Returns:
        0; of ``may-start`` the status of `EXIT`.
    """
    actions = {
        "create": _create,
        "list": _list,
        "show": lambda args, gate: _print(args, ask(gate, Operations.show_upgrade, args.name)),
        "may-start": _may_start,
        "approve": _act,
        "retract": _act,
        "stop": _act,
        "resume": _act,
        "roll-back": _act,
        "leave-out": _act,
        "freeze": _freeze,
        "unfreeze": _unfreeze,
        "freezes": _list_freezes,
        "known-good": _list_known_good,
    }
    return run_action(args, actions)


def _create(args: argparse.Namespace, gate: Client) -> int:
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
    return _print(args, ask(gate, Operations.create_upgrade, body, reason=reason))


def _print(args: argparse.Namespace, found: Body) -> int:
    if args.format == "json":
        print_json(found)
        return 0
    state = f"{found['state']}: {found['why']}" if found["why"] else found["state"]
    print(
        strip_controls(f"{found['name']}: driver {found['driver']} on {found['target']}, {state}")
    )
    print(strip_controls(f"proposed by {found['author']}: {found['reason']}"))
    print(strip_controls(found["plan"]["summary"]))
    if not found["health"]:
        print("without health reports: GPU errors on upgraded nodes go unnoticed")
    head = ("wave", "answer", "nodes", "upgraded", "excluded", "domains", "started", "finished")
    print_table(head, map(_wave_row, found["wave_list"]), empty="no waves")
    for wave in found["wave_list"]:
        if wave["answer"] in ("wait", "roll back"):
            for reason in wave["reasons"]:
                print(strip_controls(f"wave {wave['number']}, {wave['answer']}: {reason}"))
    for need in found["needs"]:
        print(strip_controls(f"{'required' if need['required'] else 'advised'}: {need['text']}"))
    for rate in found["rates"]:
        print(strip_controls(f"{'ALARM ' if rate['alarm'] else ''}{rate['text']}"))
    for event in found["events"]:
        which = f" wave {event['wave']}" if event["wave"] else ""
        text = f": {event['text']}" if event["text"] else ""
        line = f"{event['actor'] or 'compatgate'}: {event['action']}{which}{text}"
        print(f"{format_json_time(event['at'])}  {strip_controls(line)}")
    return 0


def _wave_row(wave: Body) -> tuple[Any, ...]:
    domains = wave["domains"]
    more = f" and {len(domains) - 2} more" if len(domains) > 2 else ""
    return (
        wave["number"],
        wave["answer"],
        wave["nodes"],
        wave["upgraded"],
        wave["left_out"],
        ", ".join(one["name"] for one in domains[:2]) + more,
        format_json_time(wave["started_at"]) if wave["started_at"] else "",
        format_json_time(wave["finished_at"]) if wave["finished_at"] else "",
    )


def _list(args: argparse.Namespace, gate: Client) -> int:
    found = ask_all(
        gate, args.limit, Operations.list_upgrades, state=args.state, target=args.target
    )
    head = ("upgrade", "target", "driver", "state", "waves", "nodes", "author", "made", "why")
    rows = (
        (
            one["name"],
            one["target"],
            one["driver"],
            one["state"],
            f"{one['finished']}/{one['waves']}",
            one["nodes"],
            one["author"],
            format_json_time(one["made_at"]),
            one["why"],
        )
        for one in found
    )
    return print_list(found, args.format, head, rows, empty="no upgrades")


def _may_start(args: argparse.Namespace, gate: Client) -> int:
    found = ask(
        gate,
        Operations.may_start,
        args.name,
        wave=args.wave,
        by=args.by,
        dry_run=args.dry_run or None,
    )
    if args.format == "json":
        print_json(found)
        return EXIT[found["answer"]]
    for reason in found["reasons"]:
        print(strip_controls(f"{found['answer'].upper()}: {reason}"))
    if found["answer"] == "start":
        for node in found["nodes"]:
            print(strip_controls(node))
        if found["held_until"]:
            until = format_json_time(found["held_until"])
            print(strip_controls(f"held for {found['holder']} until {until}; ask again before"))
    if found["known_good"]:
        good = found["known_good"]
        drivers = ", ".join(f"{pool} {driver}" for pool, driver in good["drivers"].items())
        print(strip_controls(f"known good: revision {good['revision']}, drivers {drivers}"))
    return EXIT[found["answer"]]


def _act(args: argparse.Namespace, gate: Client) -> int:
    if args.action in ("approve", "retract"):
        one = {"approve": Operations.approve_upgrade, "retract": Operations.retract_upgrade}
        return _print(args, ask(gate, one[args.action], args.name))
    reason = reason_of(args, f"upgrade {args.action} {args.name}")
    if args.action == "leave-out":
        return _print(
            args, ask(gate, Operations.leave_out_nodes, args.name, args.nodes, reason=reason)
        )
    changes = {
        "stop": Operations.stop_upgrade,
        "resume": Operations.resume_upgrade,
        "roll-back": Operations.roll_back_upgrade,
    }
    return _print(args, ask(gate, changes[args.action], args.name, reason=reason))


def _freeze(args: argparse.Namespace, gate: Client) -> int:
    from compatgate.kit.clock import parse_moment

    found = ask(
        gate,
        Operations.set_freeze,
        args.name,
        since=parse_moment(args.since, field="--from"),
        until=parse_moment(args.until, field="--to"),
        owner=args.owner,
        targets=args.target or ["*"],
        reason=reason_of(args, f"freeze {args.name}"),
    )
    return _print_freezes(args, [found], found)


def _unfreeze(args: argparse.Namespace, gate: Client) -> int:
    reason = reason_of(args, f"unfreeze {args.name}")
    found = ask(gate, Operations.delete_freeze, args.name, reason=reason)
    return _print_freezes(args, [found], found)


def _list_freezes(args: argparse.Namespace, gate: Client) -> int:
    found = ask_all(
        gate, args.limit, Operations.list_freezes, target=args.target, ended=args.ended or None
    )
    return _print_freezes(args, found, found)


def _print_freezes(args: argparse.Namespace, found: list[Body], answer: Any) -> int:
    head = ("freeze", "from", "to", "targets", "owner", "reason")
    rows = (
        (
            one["name"],
            format_json_time(one["since"]),
            format_json_time(one["until"]),
            ", ".join(one["targets"]),
            one["owner"],
            one["reason"],
        )
        for one in found
    )
    return print_list(answer, args.format, head, rows, empty="no freezes")


def _list_known_good(args: argparse.Namespace, gate: Client) -> int:
    found = ask_all(gate, args.limit, Operations.list_known_good)
    head = ("target", "revision", "drivers", "upgrade", "marked")
    rows = (
        (
            one["target"],
            one["revision"],
            ", ".join(f"{pool} {driver}" for pool, driver in one["drivers"].items()),
            one["upgrade"],
            format_json_time(one["marked_at"]),
        )
        for one in found
    )
    return print_list(found, args.format, head, rows, empty="no known-good states")
