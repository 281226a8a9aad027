"""Run ``compatgate notices``: list and resolve incidents; manage channels and subscriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from compatgate.core.incidents import KINDS, LEVELS, IncidentState
from compatgate.errors import BadInput
from compatgate.kit.cli.options import add_format, add_limit
from compatgate.kit.cli.output import format_json_time, print_json, print_table, read_text
from compatgate.service.gate_client import Body, Operations, add_place, ask, ask_all, run_action
from compatgate.service.notices.schemas import ChannelKind, DeliveryState, Urgency

if TYPE_CHECKING:
    import argparse

    from compatgate.client import Client

_EXAMPLES = """\
examples:
  compatgate notices incidents
  compatgate notices snooze 12 --for 24h --comment 'new nodes on Monday'
  compatgate notices resolve 12 --comment 'drained the nodes'
  compatgate notices set-channel oncall --kind webhook --url env:COMPATGATE_NOTICE_URL
  compatgate notices set-channel gpu-team --kind email --to gpu-team@example.com
  compatgate notices test oncall
  compatgate notices subscribe page --channel oncall --level fail --urgency page
  compatgate notices subscribe daily --channel gpu-team --owner team-ml --digest 24h
  compatgate notices deliveries --state failed
"""
_WHO = "command line"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command and its actions."""
    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    found = [*_add_incidents(actions), *_add_channels(actions), *_add_subscriptions(actions)]
    add_place(*found)
    add_format(*found)


def _add_incidents(actions: Any) -> list[argparse.ArgumentParser]:
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
    return [listed, shown, snooze, resolve, reopen]


def _add_channels(actions: Any) -> list[argparse.ArgumentParser]:
    listed = actions.add_parser("channels", help="list channels, without URLs and keys")
    add_limit(listed)
    made = actions.add_parser("set-channel", help="create or replace a channel")
    made.add_argument("--kind", required=True, choices=get_args(ChannelKind), help="message format")
    made.add_argument(
        "--url",
        metavar="URL",
        help="URL of the receiver, or env:COMPATGATE_NOTICE_NAME, a variable of the server; not"
        " for e-mail",
    )
    made.add_argument("--url-file", metavar="FILE", help="file with the URL; - for standard input")
    made.add_argument(
        "--key-file",
        metavar="FILE",
        help="file with the key that signs webhooks (default: create a key and print it once)",
    )
    made.add_argument("--to", action="append", default=[], metavar="ADDRESS", help="e-mail address")
    deleted = actions.add_parser("delete-channel", help="delete a channel without subscriptions")
    tested = actions.add_parser(
        "test", help="send a test message now; exit with 1 if the receiver refuses it"
    )
    for one in (made, deleted, tested):
        one.add_argument("name", metavar="CHANNEL", help="name of the channel")
    log = actions.add_parser("deliveries", help="list messages and their delivery state")
    log.add_argument("--channel", metavar="CHANNEL", help="only messages to this channel")
    log.add_argument("--state", choices=get_args(DeliveryState), help="only messages in this state")
    add_limit(log)
    return [listed, made, deleted, tested, log]


def _add_subscriptions(actions: Any) -> list[argparse.ArgumentParser]:
    listed = actions.add_parser("list", help="list subscriptions")
    add_limit(listed)
    made = actions.add_parser(
        "subscribe",
        help="create or replace a subscription: which incidents a channel receives, and how often",
    )
    made.add_argument(
        "--channel", required=True, metavar="CHANNEL", help="channel that receives the messages"
    )
    for option, what in (("kind", KINDS), ("owner", None), ("target", None), ("label", None)):
        made.add_argument(
            f"--{option}",
            action="append",
            default=[],
            choices=what,
            metavar={"target": "PATTERN", "label": "KEY=VALUE"}.get(option, option.upper()),
            help=f"only incidents of this {option}; may be repeated",
        )
    made.add_argument(
        "--level", choices=LEVELS, default="info", help="minimum level (default: info)"
    )
    made.add_argument(
        "--urgency",
        choices=get_args(Urgency),
        default="ticket",
        help="urgency stated in each message (default: ticket)",
    )
    made.add_argument(
        "--digest",
        metavar="DURATION",
        help="minimum time between two messages (default: 1h; none for pages)",
    )
    ended = actions.add_parser("unsubscribe", help="delete a subscription and its pending messages")
    for one in (made, ended):
        one.add_argument("name", metavar="NAME", help="name of the subscription")
    return [listed, made, ended]


def run(args: argparse.Namespace) -> int:
    """Run the chosen action.

    Raises:
        CompatgateError: bad input, an unknown incident, channel or subscription, or a conflict.
    """
    actions = {
        "incidents": _incidents,
        "show": _show,
        "snooze": _snooze,
        "resolve": _resolve,
        "reopen": _reopen,
        "channels": _channels,
        "set-channel": _set_channel,
        "delete-channel": _delete_channel,
        "test": _test,
        "deliveries": _deliveries,
        "list": _subscriptions,
        "subscribe": _subscribe,
        "unsubscribe": _unsubscribe,
    }
    return run_action(args, actions, making=["set-channel"], name=_WHO)


def _incidents(args: argparse.Namespace, gate: Client) -> int:
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
    head = ("id", "level", "kind", "count", "since", "last seen", "owner", "message")
    table = [
        (
            one["id"],
            one["level"],
            one["kind"],
            one["count"],
            format_json_time(one["first_seen"]),
            format_json_time(one["last_seen"]),
            ",".join(one["owners"]),
            one["message"],
        )
        for one in rows
    ]
    return _print_rows(args, rows, head, table, "nothing needs attention")


def _print_rows(
    args: argparse.Namespace, rows: list[Body], head: tuple[str, ...], table: Any, empty: str
) -> int:
    if args.format == "json":
        print_json(rows)
    else:
        print_table(head, table, empty=empty)
    return 0


def _show(args: argparse.Namespace, gate: Client) -> int:
    found = ask(gate, Operations.show_incident, args.id)
    if args.format == "json":
        print_json(found)
        return 0
    print(f"{found['id']} [{found['level']}] {found['title']}: {found['message']}")
    state = "snoozed" if found["snoozed"] else found["state"]
    seen = format_json_time(found["first_seen"]), format_json_time(found["last_seen"])
    print(f"{state}; first seen {seen[0]}, last seen {seen[1]}")
    for one in found["members"]:
        owner = f" (owner: {one['owner']})" if one["owner"] else ""
        print(f"  {one['name']} {one['note']}{owner}")
    return 0


def _snooze(args: argparse.Namespace, gate: Client) -> int:
    operation = Operations.snooze_incident
    found = ask(gate, operation, args.id, duration=args.duration, comment=args.comment)
    return _print_done(args, found, f"snoozed until {format_json_time(found['snoozed_until'])}")


def _resolve(args: argparse.Namespace, gate: Client) -> int:
    return _print_done(
        args, ask(gate, Operations.resolve_incident, args.id, comment=args.comment), "resolved"
    )


def _reopen(args: argparse.Namespace, gate: Client) -> int:
    return _print_done(
        args, ask(gate, Operations.reopen_incident, args.id, comment=args.comment), "open again"
    )


def _print_done(args: argparse.Namespace, found: Body, done: str) -> int:
    if args.format == "json":
        print_json(found)
    else:
        print(f"{found.get('id') or found['name']} is {done}")
    return 0


def _channels(args: argparse.Namespace, gate: Client) -> int:
    rows = ask_all(gate, args.limit, Operations.list_channels)
    head = ("name", "kind", "changed", "by", "place")
    table = [
        (
            one["name"],
            one["kind"],
            format_json_time(one["changed_at"]),
            one["changed_by"],
            one["place"],
        )
        for one in rows
    ]
    return _print_rows(args, rows, head, table, "no channels: compatgate notices set-channel")


def _set_channel(args: argparse.Namespace, gate: Client) -> int:
    if args.url and args.url_file:
        raise BadInput("state one of --url and --url-file", field="--url")
    body: dict[str, Any] = {"kind": args.kind, "to": args.to}
    for name, given in (("url", args.url_file), ("key", args.key_file)):
        if given:
            body[name] = read_text(given, f"--{name}-file").strip("\r\n")
    if args.url:
        body["url"] = args.url
    made = ask(gate, Operations.set_channel, args.name, body)
    if args.format == "json":
        print_json(made)
        return 0
    print(f"{args.name} goes to {made['channel']['place']}")
    if made["key"]:
        print(f"key that signs its webhooks, printed only once: {made['key']}")
    return 0


def _delete_channel(args: argparse.Namespace, gate: Client) -> int:
    return _print_done(args, ask(gate, Operations.delete_channel, args.name), "deleted")


def _test(args: argparse.Namespace, gate: Client) -> int:
    found = ask(gate, Operations.test_channel, args.name)
    if args.format == "json":
        print_json(found)
    else:
        print(f"{args.name}: {found['state']}: {found['answer']}")
    return 0 if found["state"] == "sent" else 1


def _deliveries(args: argparse.Namespace, gate: Client) -> int:
    operation = Operations.list_deliveries
    rows = ask_all(gate, args.limit, operation, channel=args.channel, state=args.state)
    head = ("id", "made", "channel", "state", "attempts", "next", "title", "answer")
    table = [
        (
            one["id"],
            format_json_time(one["made_at"]),
            one["channel"],
            one["state"],
            one["attempts"],
            format_json_time(one["next_at"]) if one["state"] == "waiting" else None,
            one["title"],
            one["answer"],
        )
        for one in rows
    ]
    return _print_rows(args, rows, head, table, "no messages")


def _subscriptions(args: argparse.Namespace, gate: Client) -> int:
    rows = ask_all(gate, args.limit, Operations.list_subscriptions)
    head = ("name", "channel", "urgency", "digest", "last", "about")
    table = [
        (
            one["name"],
            one["channel"],
            one["urgency"],
            f"{one['digest_s']} s",
            format_json_time(one["last_at"]),
            _about(one),
        )
        for one in rows
    ]
    return _print_rows(args, rows, head, table, "no subscriptions: compatgate notices subscribe")


def _about(one: Body) -> str:
    labels = [f"{key}={value}" for key, value in one["labels"].items()]
    parts = [*one["kinds"], *one["owners"], *labels, *one["targets"]]
    level = {"fail": "fail", "warn": "warn or worse"}.get(one["level"], "")
    return ", ".join(filter(None, (*parts, level))) or "everything"


def _subscribe(args: argparse.Namespace, gate: Client) -> int:
    labels = {}
    for text in args.label:
        key, equal, value = text.partition("=")
        if not key or not equal:
            raise BadInput(
                "is not a label of the form KEY=VALUE",
                field="--label",
                value=text,
                hint="for example tier=prod",
            )
        labels[key] = value
    body = {
        "channel": args.channel,
        "kinds": args.kind,
        "owners": args.owner,
        "labels": labels,
        "targets": args.target,
        "level": args.level,
        "urgency": args.urgency,
    }
    if args.digest:
        body["digest"] = args.digest
    found = ask(gate, Operations.set_subscription, args.name, body)
    return _print_done(args, found, f"subscribed to {_about(found)}")


def _unsubscribe(args: argparse.Namespace, gate: Client) -> int:
    return _print_done(args, ask(gate, Operations.delete_subscription, args.name), "deleted")
