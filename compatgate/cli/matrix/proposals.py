"""Propose, review, approve, merge and revert changes: actions of ``compatgate matrix``."""

from __future__ import annotations

import argparse
from typing import Any

from compatgate.check.question import read_changes
from compatgate.cli.commands import Row, columns
from compatgate.cli.gate import Client, Operations, asking
from compatgate.cli.gate.comparison import read_document_name
from compatgate.cli.matrix.files import format_changes
from compatgate.documents.sources import read_paths
from compatgate.errors import BadInput
from compatgate.gate_client import Body, ask
from compatgate.kit.cli.options import AUTHOR, AUTHORSHIP, FORCE, note_warnings, reason_of
from compatgate.kit.cli.output import format_json_time, print_answer, strip_controls
from compatgate.kit.sections import shorten

_STATUSES = {"bless": "blessed", "deprecate": "deprecated", "revoke": "revoked"}
_EVENTS = {
    "open": "proposed it",
    "change": "changed it",
    "comment": "commented",
    "approve": "approved",
    "retract": "withdrew the approval",
    "merge": "merged it",
    "close": "closed it",
}


@asking(
    "propose a change for others to approve",
    """\
[files: FILE|DIR|- ...]   files with the proposed documents
--target TARGET           target with the pools that --set changes
--pool POOL               pool that --set changes (default: every pool)
--set NAME=VALUE,... ...  new pool value, for example driver=580.95.05; may be repeated
--bless ENTRY ...         set the status of this entry to blessed
--deprecate ENTRY ...     set the status of this entry to deprecated
--revoke ENTRY ...        set the status of this entry to revoked
--delete KIND/NAME ...    document to delete, like Entry/torch24-cu124
--base REVISION           revision that the proposal is based on; fail if a document changed since
--update ID               replace the edits of your own proposal
""",
    FORCE,
    "--merge-when-approved  merge automatically on the last approval",
    AUTHORSHIP,
    epilog="""\
examples:
  compatgate matrix propose entry.yaml --reason "torch 2.8 passed on staging"
  compatgate matrix propose --bless torch28-cu128
  compatgate matrix propose --target prod-a100 --set driver=580.95.05
  compatgate matrix propose --update pr_52f3d1a2b4c6e8f0 entry.yaml
""",
    base={"type": int},
)
def propose(args: argparse.Namespace, gate: Client) -> int:
    """Propose a change, or replace the edits of a proposal."""
    edits, named = _read_edits(args), list(args.files)
    for option in _STATUSES:
        named += [f"--{option} {name}" for name in getattr(args, option)]
    named += [f"--delete {one}" for one in args.delete]
    if args.set:
        named.append(f"--target {args.target} --set {','.join(args.set)}")
    reason = reason_of(args, f"matrix propose {' '.join(named)}".strip())
    by: Body = {"reason": reason, "force": args.force or None}
    if args.update:
        found = ask(gate, Operations.change_proposal, args.update, edits, **by)
    else:
        found = ask(gate, Operations.create_proposal, edits, **by)
    if args.format != "json":
        note_warnings(found.get("warnings", ()))
    lines = [f"proposal {found['id']}: {found['reason']}"]
    lines += [*(f"  {line}" for line in found["summary"]), *_list_blockers(found)]
    return print_answer(args.format, found, strip_controls("\n".join(lines)))


def _read_edits(args: argparse.Namespace) -> Body:
    files = [{"file": one.file, "text": one.text} for one in read_paths(args.files)]
    entries = [
        {"entry": name, "status": status}
        for option, status in _STATUSES.items()
        for name in getattr(args, option)
    ]
    deleted = [read_document_name(text) for text in args.delete]
    edits: Body = {"files": files, "entries": entries, "delete": deleted}
    if values := _read_values(args):
        edits["pools"] = [{"target": args.target, "set": values}]
        if args.pool:
            edits["pools"][0]["pool"] = args.pool
    if args.base is not None:
        edits["base"] = args.base
    if args.merge_when_approved:
        edits["merge"] = "approved"
    return edits


def _read_values(args: argparse.Namespace) -> Body:
    values = read_changes(args.set)
    if str(values.get("count", "")).isdecimal():
        values["count"] = int(values["count"])
    if values and not args.target:
        hint = "name the target: --target prod-a100"
        raise BadInput("needs a target", field="--set", value=",".join(args.set), hint=hint)
    if (args.target or args.pool) and not values:
        hint = "for example --set driver=580.95.05"
        raise BadInput("has no effect without --set", field="--target", hint=hint)
    return values


def format_proposal(found: Body) -> str:
    """Return a proposal with its difference, and what it needs and has."""
    lines = [
        f"{found['id']}: {found['state']}, by {found['author']}",
        f"digest: {found['digest']}",
        f"reason: {found['reason']}",
        *(f"  {line}" for line in found["summary"]),
        f"\n{found['diff'] or 'no difference'}\n",
    ]
    for event in found["events"]:
        stale = "" if event["current"] else " (of earlier edits)"
        words = f": {event['text']}" if event["text"] else ""
        what = f"{event['actor']} {_EVENTS[event['action']]}{stale}{words}"
        lines.append(f"{format_json_time(event['at'])}  {what}")
    lines += [f"canary run that counts: {run}" for run in found["evidence"]["runs"]]
    for need in found["evidence"]["needs"]:
        asked = "required" if need["required"] else "not required"
        lack = f"run {need['failed']} failed" if need["failed"] else "has not passed"
        where = f"{need['target']}, {need['sku']}, driver {need['driver']}"
        suite = f"suite {need['suite']} for {need['entry']} on {where}"
        lines.append(f"canary ({asked}): {suite}: {lack}")
    if found["backtest"]:
        lines.append(f"backtest: {found['backtest']['summary']}")
    if found["override"]:
        lines.append(f"merged without required evidence: {found['override']}")
    return strip_controls("\n".join([*lines, *_list_blockers(found)]))


def _list_blockers(found: Body) -> list[str]:
    named = f"{found['id']} --digest {found['digest']}"
    if found["state"] == "merged":
        return [f"merged as revision {found['revision']}"]
    if not found["blockers"]:
        return [f"ready: compatgate matrix merge {named}"]
    lines = [f"before a merge: {one}" for one in found["blockers"]]
    if any(one["people"] > 1 + one["approvals"] for one in found["demands"]):
        lines.append(f"to approve: compatgate matrix approve {named}")
    return lines


def _format_reverted(found: Body) -> str:
    kind = "proposal" if found["proposal"] else "revision"
    made = f"{kind} {found[kind]} reverts the revision"
    return "\n".join([*format_changes(found["changes"]), made])


def _format_state(proposal: Body, what: str) -> str:
    if proposal["revision"] is not None:
        return f"{proposal['id']} {what}: revision {proposal['revision']}"
    more = [] if proposal["state"] == "closed" else _list_blockers(proposal)
    return strip_controls("\n".join([f"{proposal['id']} {what}", *more]))


def _format_approved(proposal: Body) -> str:
    approvals = proposal["approvals"]
    by = approvals[-1]["by"] if approvals else proposal["decided_by"]
    return _format_state(proposal, f"was approved by {by}")


def _list(args: argparse.Namespace) -> Any:
    """List proposals; without ``--all`` and a state, those that are open."""
    if args.all or args.state:
        return LIST.ask(args)
    most, args.limit = args.limit, None  # what has ended is left out below
    return [one for one in LIST.ask(args) if one["state"] not in ("merged", "closed")][:most]


_READ = """\
--digest DIGEST  digest of the edits that you read, as matrix show prints it; without it, they are
                 shown
"""
LIST = Row(
    "list_proposals",
    """\
--state {}  only proposals in this state (default: open)
--all       include merged and closed proposals
...
""",
    columns(
        "id",
        ("state", lambda p: p["state"] if p["revision"] is None else f"merged: {p['revision']}"),
        *("author", "made: made_at", "targets"),
        ("changes", lambda one: shorten(one["documents"], 3)),
        *("approved by: approvals.by", "reason"),
    ),
    answer=_list,
)
APPROVE = Row("approve_proposal", f"ID\n{_READ}{AUTHOR}", text=_format_approved)
RETRACT = Row(
    "retract_approval",
    f"ID\n{AUTHOR}",
    text=lambda one: _format_state(one, "no longer has your approval"),
)
MERGE = Row(
    "merge_proposal",
    f"ID\n{_READ}{AUTHOR}--override REASON",
    text=lambda one: _format_state(one, f"was merged by {one['decided_by']}"),
)
CLOSE = Row(
    "close_proposal",
    f"ID\n-m, --comment COMMENT  comment, shown in the history\n{AUTHOR}",
    text=lambda one: _format_state(one, f"was closed by {one['decided_by']}: nothing changed"),
)
REVERT = Row(
    "revert_revision",
    "number: REVISION  revision to revert\n...",
    text=_format_reverted,
    reason="revert revision {number}",
    summary="undo a revision",
)
