"""Propose, review, approve, merge and revert changes: actions of ``compatgate matrix``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compatgate.cli.gate.opening import Operations, ask_row, gate_of, run_row
from compatgate.errors import BadInput
from compatgate.gate_client import Body, ask
from compatgate.kit.cli.commands import Option, Row, find_row, print_answer, time_of
from compatgate.kit.cli.options import (
    add_authorship,
    add_force,
    add_format,
    note_warnings,
    reason_of,
)
from compatgate.kit.cli.output import format_json_time, print_json
from compatgate.kit.cli.terminal import strip_controls
from compatgate.kit.sections import shorten

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator

    from compatgate.client import Client


PROPOSAL_ID = re.compile(r"(pr|ap)_[0-9a-f]{16}")
"""Pattern of a proposal id, which `matrix show` distinguishes from a document."""
_STATUSES = {"bless": "blessed", "deprecate": "deprecated", "revoke": "revoked"}


_DIGEST = "digest of the edits that you read, as matrix show prints it; without it, they are shown"
_EVENTS = {
    "open": "proposed it",
    "change": "changed it",
    "comment": "commented",
    "approve": "approved",
    "retract": "withdrew the approval",
    "merge": "merged it",
    "close": "closed it",
}


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
    _print_lines(_list_blockers(found), "")
    note_warnings(found.get("warnings", ()))
    return 0


def _read_edits(args: argparse.Namespace) -> Body:
    from compatgate.cli.gate.comparison import read_document_name
    from compatgate.documents.sources import read_paths

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
    _print_lines(_list_blockers(found), "")
    return 0


def _print_lines(lines: Iterable[str], indent: str) -> None:
    for line in lines:
        print(f"{indent}{strip_controls(line)}")


def _list_blockers(found: Body) -> list[str]:
    """Return what is missing before a merge, or what to run next."""
    if found["state"] == "merged":
        return [f"merged as revision {found['revision']}"]
    if not found["blockers"]:
        return [f"ready: compatgate matrix merge {_named(found)}"]
    lines = [strip_controls(f"before a merge: {one}") for one in found["blockers"]]
    if any(one["people"] > 1 + one["approvals"] for one in found["demands"]):
        lines.append(f"to approve: compatgate matrix approve {_named(found)}")
    return lines


def _named(found: Body) -> str:
    return f"{found['id']} --digest {found['digest']}"


def revert(args: argparse.Namespace, gate: Client) -> int:
    """Restore what a revision changed, as a new revision or a proposal."""
    from compatgate.cli.matrix.documents import print_changes

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


def _format_state(proposal: Body, what: str) -> str:
    """Return what was done to a proposal, and what it needs now."""
    if proposal["revision"] is not None:
        return f"{proposal['id']} {what}: revision {proposal['revision']}"
    more = [] if proposal["state"] == "closed" else _list_blockers(proposal)
    return "\n".join([f"{proposal['id']} {what}", *more])


def _format_approved(proposal: Body) -> str:
    approvals = proposal["approvals"]
    by = approvals[-1]["by"] if approvals else proposal["decided_by"]
    return _format_state(proposal, f"was approved by {by}")


def _format_approval(one: Body) -> str:
    """Return a change that waits for a second person, line by line."""
    asked = format_json_time(one["made_at"])
    lines = [
        f"{one['id']}: {_name_state(one)}; {one['author']} asked on {asked}",
        f"reason: {one['reason']}",
        f"digest: {one['digest']}",
    ]
    for change in one["changes"]:
        lines.append(f"{change['action']} {change['kind']} {change['name']}")
        for field in change["fields"]:
            lines.append(f"  {field['path']}: {field['before']} -> {field['after']}")
    return "\n".join(lines)


def _name_state(one: Body) -> str:
    if one["state"] == "waiting":
        return "waiting" if one["open"] else "expired"
    return f"{one['state']} by {one['decided_by']}"


def _add_author(parser: argparse.ArgumentParser) -> None:
    text = "author of the change (default: your user name)"
    parser.add_argument("--author", metavar="NAME", help=text)


def _add_comment(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-m", "--comment", help="comment, shown in the history")
    _add_author(parser)


def _add_all(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="include merged and closed proposals")


def _add_approval(parser: argparse.ArgumentParser) -> None:
    about = "id of an approval request, to show with its changes"
    parser.add_argument("id", nargs="?", metavar="ID", help=about)


_ID = Option("id", metavar="ID", help="proposal id")
_READ = Option("digest", help=_DIGEST)
_OVERRIDE = "reason to merge without the canary evidence that a policy requires; stays visible"
LIST = Row(
    "proposals",
    "list_proposals",
    "list proposals",
    (
        Option("state", help="only proposals in this state (default: open)"),
        Option("target", help="only proposals that affect this target"),
        Option("author", help="only proposals of this author"),
    ),
    {
        "id": "id",
        "state": lambda one: (
            one["state"] if one["revision"] is None else f"merged: {one['revision']}"
        ),
        "author": "author",
        "made": time_of("made_at"),
        "targets": lambda one: ",".join(one["targets"]),
        "changes": lambda one: shorten(one["documents"], 3),
        "approved by": lambda one: ", ".join(approval["by"] for approval in one["approvals"]),
        "reason": "reason",
    },
    "no proposals",
    extend=_add_all,
)
APPROVALS = Row(
    "approvals",
    "list_approvals",
    "list changes that wait for a second person",
    (Option("waiting", "--all", "include decided and expired approval requests", form="unless"),),
    {
        "id": "id",
        "author": "author",
        "asked": time_of("made_at"),
        "until": time_of("expires_at"),
        "state": _name_state,
        "targets": lambda one: ",".join(one["targets"]),
        "changes": lambda one: ", ".join(f"{c['kind']} {c['name']}" for c in one["changes"][:3]),
        "reason": "reason",
    },
    "no change waits for a second person",
    extend=_add_approval,
)
CLOSE = Row(
    "close",
    "close_proposal",
    "close a proposal without merging it",
    (_ID,),
    text=lambda one: _format_state(one, f"was closed by {one['decided_by']}: nothing changed"),
    extend=_add_comment,
)
ROWS = (
    LIST,
    APPROVALS,
    Row(
        "refuse",
        "refuse_change",
        "refuse or withdraw a change that waits for a second person",
        (Option("id", metavar="ID", help="approval id, as printed when the change was refused"),),
        text=lambda one: f"{one['id']} was {_name_state(one)}: nothing changed",
        extend=_add_author,
    ),
    Row(
        "approve",
        "approve_proposal",
        "approve another person's proposal",
        (_ID, _READ),
        text=_format_approved,
        extend=_add_author,
    ),
    Row(
        "retract",
        "retract_approval",
        "withdraw your approval",
        (_ID,),
        text=lambda one: _format_state(one, "no longer has your approval"),
        extend=_add_author,
    ),
    Row(
        "merge",
        "merge_proposal",
        "merge a proposal into the matrix",
        (_ID, _READ, Option("override", help=_OVERRIDE, metavar="REASON")),
        text=lambda one: _format_state(one, f"was merged by {one['decided_by']}"),
        extend=_add_author,
    ),
    CLOSE,
)


def run_proposal_row(args: argparse.Namespace) -> int:
    """Run a command that asks one operation about proposals."""
    row = find_row(ROWS, args.action)
    if row is APPROVALS and args.id:
        with gate_of(args) as gate:
            one = ask(gate, Operations.show_approval, args.id)
        if args.format == "json":
            print_json(one)
        else:
            print(_format_approval(one))
        return 0
    if row is not LIST or args.all or args.argument_state:
        return run_row(args, row, **({"comment": args.comment} if row is CLOSE else {}))
    most, args.limit = args.limit, None  # what has ended is left out below
    found = [one for one in ask_row(args, row) if one["state"] not in ("merged", "closed")]
    return print_answer(args.format, row, found[:most])
