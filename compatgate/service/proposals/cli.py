"""Propose, review, approve, merge and revert changes: actions of ``compatgate matrix``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatgate.errors import BadInput
from compatgate.kit.cli.options import (
    add_authorship,
    add_force,
    add_format,
    add_limit,
    note_warnings,
    reason_of,
)
from compatgate.kit.cli.output import format_json_time, print_json, print_list
from compatgate.kit.cli.terminal import strip_controls
from compatgate.kit.sections import shorten
from compatgate.service.gate_client import Body, Operations, ask, ask_all

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator

    from compatgate.client import Client


_STATES = ("open", "approved", "conflicted", "merged", "closed")
_STATUSES = {"bless": "blessed", "deprecate": "deprecated", "revoke": "revoked"}


_DIGEST = "digest of the edits that you read, as matrix show prints it; without it, they are shown"


def propose_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``matrix propose``."""
    parser.epilog = """\
examples:
  compatgate matrix propose entry.yaml --reason "torch 2.8 passed on staging"
  compatgate matrix propose --bless torch28-cu128
  compatgate matrix propose --target prod-a100 --set driver=580.95.05
  compatgate matrix propose --update pr_52f3d1a2b4c6e8f0 entry.yaml
"""
    parser.add_argument(
        "files", nargs="*", metavar="FILE|DIR|-", help="files with the proposed documents"
    )
    parser.add_argument("--target", help="target with the pools that --set changes")
    parser.add_argument("--pool", help="pool that --set changes (default: every pool)")
    parser.add_argument(
        "--set",
        metavar="NAME=VALUE,...",
        action="append",
        default=[],
        help="new pool value, for example driver=580.95.05; may be repeated",
    )
    for option, status in _STATUSES.items():
        parser.add_argument(
            f"--{option}",
            metavar="ENTRY",
            action="append",
            default=[],
            help=f"set the status of this entry to {status}",
        )
    parser.add_argument(
        "--delete",
        metavar="KIND/NAME",
        action="append",
        default=[],
        help="document to delete, like Entry/torch24-cu124",
    )
    parser.add_argument(
        "--base",
        type=int,
        metavar="REVISION",
        help="revision that the proposal is based on; fail if a document changed since",
    )
    parser.add_argument("--update", metavar="ID", help="replace the edits of your own proposal")
    add_force(parser)
    parser.add_argument(
        "--merge-when-approved",
        action="store_true",
        help="merge automatically on the last approval",
    )
    add_authorship(parser)
    add_format(parser)


def list_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``matrix proposals``."""
    parser.add_argument(
        "--state", choices=_STATES, help="only proposals in this state (default: open)"
    )
    parser.add_argument("--all", action="store_true", help="include merged and closed proposals")
    parser.add_argument("--target", help="only proposals that affect this target")
    parser.add_argument("--author", help="only proposals of this author")
    add_limit(parser)
    add_format(parser)


def review_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the actions with one proposal."""
    parser.add_argument("id", metavar="ID", help="proposal id")
    parser.add_argument(
        "--author", metavar="NAME", help="author of the change (default: your user name)"
    )
    add_format(parser)


def close_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``matrix close``."""
    review_arguments(parser)
    parser.add_argument("-m", "--comment", help="comment, shown in the history")


def approve_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``matrix approve``."""
    review_arguments(parser)
    parser.add_argument("--digest", help=_DIGEST)


def merge_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``matrix merge``."""
    parser.add_argument("id", metavar="ID", help="proposal id")
    parser.add_argument("--digest", help=_DIGEST)
    parser.add_argument(
        "--override",
        metavar="REASON",
        help="reason to merge without the canary evidence that a policy requires; stays visible",
    )
    parser.add_argument(
        "--author", metavar="NAME", help="author of the merge (default: your user name)"
    )
    add_format(parser)


def revert_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``matrix revert``."""
    parser.add_argument("revision", type=int, metavar="REVISION", help="revision to revert")
    parser.add_argument(
        "--propose", action="store_true", help="create a proposal even if no policy requires one"
    )
    add_authorship(parser)
    add_format(parser)


def propose(args: argparse.Namespace, gate: Client) -> int:
    """Propose a change, or replace the edits of a proposal."""
    edits = _read_edits(args)
    reason = reason_of(args, f"matrix propose {' '.join(_name_edits(args))}".strip())
    force = args.force or None
    if args.update:
        found = ask(
            gate, Operations.change_proposal, args.update, edits, reason=reason, force=force
        )
    else:
        found = ask(gate, Operations.create_proposal, edits, reason=reason, force=force)
    if args.format == "json":
        print_json(found)
        return 0
    print(f"proposal {found['id']}: {found['reason']}")
    _print_lines(found["summary"], "  ")
    _print_blockers(found)
    note_warnings(found.get("warnings", ()))
    return 0


def _read_edits(args: argparse.Namespace) -> Body:
    from compatgate.documents.sources import read_paths
    from compatgate.service.comparison.commands import read_document_name

    files = [{"file": one.file, "text": one.text} for one in read_paths(args.files)]
    entries = [
        {"entry": name, "status": status}
        for option, status in _STATUSES.items()
        for name in getattr(args, option)
    ]
    edits: Body = {"files": files, "entries": entries}
    edits["delete"] = [read_document_name(text) for text in args.delete]
    if values := _read_values(args):
        edits["pools"] = [{"target": args.target, "set": values}]
        if args.pool:
            edits["pools"][0]["pool"] = args.pool
    if args.base is not None:
        edits["base"] = args.base
    if args.merge_when_approved:
        edits["merge"] = "approved"
    return edits


def _read_values(args: argparse.Namespace) -> dict[str, str | int]:
    values: dict[str, str | int] = {}
    for part in ",".join(args.set).split(","):
        name, sign, value = part.partition("=")
        if not part:
            continue
        if not sign or not name or not value:
            hint = "for example driver=580.95.05"
            raise BadInput("is not NAME=VALUE", field="--set", value=part, hint=hint)
        values[name] = int(value) if name == "count" and value.isdecimal() else value
    if values and not args.target:
        hint = "name the target: --target prod-a100"
        raise BadInput("needs a target", field="--set", value=",".join(args.set), hint=hint)
    if (args.target or args.pool) and not values:
        hint = "for example --set driver=580.95.05"
        raise BadInput("has no effect without --set", field="--target", hint=hint)
    return values


def _name_edits(args: argparse.Namespace) -> Iterator[str]:
    yield from args.files
    for option in _STATUSES:
        yield from (f"--{option} {name}" for name in getattr(args, option))
    yield from (f"--delete {one}" for one in args.delete)
    if args.set:
        yield f"--target {args.target} --set {','.join(args.set)}"


def list_proposals(args: argparse.Namespace, gate: Client) -> int:
    """List proposals."""
    found = ask_all(
        gate,
        args.limit if args.state or args.all else None,
        Operations.list_proposals,
        state=args.state,
        target=args.target,
        author=args.author,
    )
    if not args.state and not args.all:
        found = [one for one in found if one["state"] not in ("merged", "closed")][: args.limit]
    head = ("id", "state", "author", "made", "targets", "changes", "approved by", "reason")
    return print_list(found, args.format, head, map(_list_row, found), empty="no proposals")


def _list_row(one: Body) -> tuple[Any, ...]:
    return (
        one["id"],
        one["state"] if one["revision"] is None else f"merged: {one['revision']}",
        one["author"],
        format_json_time(one["made_at"]),
        ",".join(one["targets"]),
        shorten(one["documents"], 3),
        ", ".join(approval["by"] for approval in one["approvals"]),
        one["reason"],
    )


def show_proposal(args: argparse.Namespace, gate: Client) -> int:
    """Show a proposal with its difference, and what it needs and has."""
    found = ask(gate, Operations.show_proposal, args.name)
    if args.format == "json":
        print_json(found)
        return 0
    print(f"{found['id']}: {found['state']}, by {found['author']}")
    print(f"digest: {found['digest']}")
    print(f"reason: {strip_controls(found['reason'])}")
    _print_lines(found["summary"], "  ")
    print()
    print(strip_controls(found["diff"]) if found["diff"] else "no difference")
    print()
    for event in found["events"]:
        stale = "" if event["current"] else " (of earlier edits)"
        words = f": {strip_controls(event['text'])}" if event["text"] else ""
        when = format_json_time(event["at"])
        print(f"{when}  {event['actor']} {_EVENTS[event['action']]}{stale}{words}")
    _print_lines((f"canary run that counts: {run}" for run in found["evidence"]["runs"]), "")
    for need in found["evidence"]["needs"]:
        asked = "required" if need["required"] else "not required"
        lack = f"run {need['failed']} failed" if need["failed"] else "has not passed"
        where = f"{need['target']}, {need['sku']}, driver {need['driver']}"
        print(f"canary ({asked}): suite {need['suite']} for {need['entry']} on {where}: {lack}")
    if found["backtest"]:
        print(f"backtest: {strip_controls(found['backtest']['summary'])}")
    if found["override"]:
        print(f"merged without required evidence: {strip_controls(found['override'])}")
    _print_blockers(found)
    return 0


_EVENTS = {
    "open": "proposed it",
    "change": "changed it",
    "comment": "commented",
    "approve": "approved",
    "retract": "withdrew the approval",
    "merge": "merged it",
    "close": "closed it",
}


def _print_lines(lines: Iterable[str], indent: str) -> None:
    for line in lines:
        print(f"{indent}{strip_controls(line)}")


def _print_blockers(found: Body) -> None:
    if found["state"] == "merged":
        print(f"merged as revision {found['revision']}")
    elif found["blockers"]:
        _print_lines((f"before a merge: {one}" for one in found["blockers"]), "")
        if any(one["people"] > 1 + one["approvals"] for one in found["demands"]):
            print(f"to approve: compatgate matrix approve {_named(found)}")
    else:
        print(f"ready: compatgate matrix merge {_named(found)}")


def _named(found: Body) -> str:
    return f"{found['id']} --digest {found['digest']}"


def approve(args: argparse.Namespace, gate: Client) -> int:
    """Approve a proposal; the last approval may merge it."""
    found = ask(gate, Operations.approve_proposal, args.id, digest=args.digest)
    who = found["approvals"][-1]["by"] if found["approvals"] else found["decided_by"]
    return _print_result(args, found, f"was approved by {who}")


def retract(args: argparse.Namespace, gate: Client) -> int:
    """Withdraw your approval."""
    found = ask(gate, Operations.retract_approval, args.id)
    return _print_result(args, found, "no longer has your approval")


def merge(args: argparse.Namespace, gate: Client) -> int:
    """Merge a proposal: make its edits as one revision."""
    found = ask(
        gate, Operations.merge_proposal, args.id, digest=args.digest, override=args.override
    )
    return _print_result(args, found, f"was merged by {found['decided_by']}")


def close(args: argparse.Namespace, gate: Client) -> int:
    """Close a proposal without merging it; its author withdraws it so."""
    found = ask(gate, Operations.close_proposal, args.id, comment=args.comment)
    return _print_result(args, found, f"was closed by {found['decided_by']}: nothing changed")


def _print_result(args: argparse.Namespace, found: Body, what: str) -> int:
    if args.format == "json":
        print_json(found)
    elif found["revision"] is not None:
        print(f"{found['id']} {what}: revision {found['revision']}")
    else:
        print(f"{found['id']} {what}")
        if found["state"] != "closed":
            _print_blockers(found)
    return 0


def revert(args: argparse.Namespace, gate: Client) -> int:
    """Restore what a revision changed, as a new revision or a proposal."""
    from compatgate.service.matrix.cli import print_changes

    why = reason_of(args, f"revert revision {args.revision}")
    found = ask(gate, Operations.revert_revision, args.revision, reason=why, propose=args.propose)
    if args.format == "json":
        print_json(found)
        return 0
    print_changes(found["changes"])
    if found["proposal"]:
        print(f"proposal {found['proposal']} reverts revision {args.revision}")
    else:
        print(f"revision {found['revision']} reverts revision {args.revision}")
    return 0


def approvals_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``matrix approvals``."""
    parser.add_argument(
        "id", nargs="?", metavar="ID", help="id of an approval request, to show with its changes"
    )
    parser.add_argument(
        "--all", action="store_true", help="include decided and expired approval requests"
    )
    add_limit(parser)
    add_format(parser)


def decision_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``matrix refuse``."""
    parser.add_argument(
        "id", metavar="ID", help="approval id, as printed when the change was refused"
    )
    parser.add_argument(
        "--author",
        metavar="NAME",
        help="author of the decision, for a local database (default: your user name)",
    )
    add_format(parser)


def list_approvals(args: argparse.Namespace, gate: Client) -> int:
    """List changes that wait for a second person, or show one."""
    if args.id:
        found = ask(gate, Operations.show_approval, args.id)
        if args.format == "json":
            print_json(found)
        else:
            _print_approval(found)
        return 0
    waiting = None if args.all else True
    rows = ask_all(gate, args.limit, Operations.list_approvals, waiting=waiting)
    head = ("id", "author", "asked", "until", "state", "targets", "changes", "reason")
    empty = "no change waits for a second person"
    return print_list(rows, args.format, head, map(_row, rows), empty=empty)


def _row(one: Body) -> tuple[Any, ...]:
    return (
        one["id"],
        one["author"],
        format_json_time(one["made_at"]),
        format_json_time(one["expires_at"]),
        _state(one),
        ",".join(one["targets"]),
        ", ".join(f"{change['kind']} {change['name']}" for change in one["changes"][:3]),
        one["reason"],
    )


def _state(one: Body) -> str:
    if one["state"] == "waiting":
        return "waiting" if one["open"] else "expired"
    return f"{one['state']} by {one['decided_by']}"


def _print_approval(one: Body) -> None:
    when = format_json_time(one["made_at"])
    print(f"{one['id']}: {_state(one)}; {one['author']} asked on {when}")
    print(f"reason: {one['reason']}")
    print(f"digest: {one['digest']}")
    for change in one["changes"]:
        print(f"{change['action']} {change['kind']} {change['name']}")
        for field in change["fields"]:
            print(f"  {field['path']}: {field['before']} -> {field['after']}")


def refuse(args: argparse.Namespace, gate: Client) -> int:
    """Refuse a change that waits for a second person, or withdraw your own."""
    return _print_decision(args, ask(gate, Operations.refuse_change, args.id), "nothing changed")


def _print_decision(args: argparse.Namespace, found: Body, result: str) -> int:
    if args.format == "json":
        print_json(found)
    else:
        print(f"{found['id']} was {found['state']} by {found['decided_by']}: {result}")
    return 0
