"""Run ``compatgate matrix`` list, show, delete and log: documents and revisions."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import msgspec

from compatgate.cli.commands import Cell, Row, print_row, print_rows, time_of
from compatgate.cli.gate.opening import (
    RUN_MEMBERS,
    Operations,
    asking,
    drop_members,
    drop_storage_members,
)
from compatgate.cli.matrix import proposals
from compatgate.cli.matrix.files import print_changes
from compatgate.core.components import resolve_component
from compatgate.documents.text import to_yaml
from compatgate.errors import BadInput, NotFound
from compatgate.gate_client import Body, ask, ask_all
from compatgate.kit.cli.options import AUTHORSHIP, FORMAT, PLACE, add_limit, reason_of
from compatgate.kit.cli.output import format_json_time, print_answer, print_json
from compatgate.kit.cli.terminal import strip_controls
from compatgate.kit.cli.usage import action
from compatgate.service.matrix.proposals.schemas import PROPOSAL_ID

if TYPE_CHECKING:
    from compatgate.client import Client

_KINDS = ("entry", "waiver", "target")


_FILTERS = {
    "entries": ("target", "status", "component", "label", "owner", "search"),
    "targets": ("label", "owner", "search"),
    "waivers": ("target", "owner", "search"),
}


@action(
    "list",
    "list entries, targets or waivers",
    """\
[kind: {entries,targets,waivers}] = entries  kind of documents
--target TARGET        target of entries or waivers
--status {candidate,blessed,deprecated,revoked}  status of entries
--component COMPONENT  component of entries
--owner OWNER          owner of the documents
--label KEY=VALUE      label of entries or targets
--search TEXT          part of the name
""",
    add_limit,
    FORMAT,
    PLACE,
)
@asking
def show_list(args: argparse.Namespace, gate: Client) -> int:
    """Run ``matrix list``."""
    listing: Any = {
        "entries": Operations.list_entries,
        "targets": Operations.list_targets,
        "waivers": Operations.list_waivers,
    }[args.kind]
    found = ask_all(gate, args.limit, listing, **_read_filters(args))
    if args.format == "json":
        print_json([drop_members(RUN_MEMBERS, body) for body in found])
        return 0
    print_rows(found, _COLUMNS[args.kind], f"no {args.kind}")
    return 0


def _read_filters(args: argparse.Namespace) -> dict[str, Any]:
    filters: dict[str, Any] = {}
    for name in ("target", "status", "component", "label", "owner", "search"):
        value = getattr(args, name)
        if value is None:
            continue
        if name not in _FILTERS[args.kind]:
            hint = f"filter {args.kind} by {', '.join(_FILTERS[args.kind])}"
            raise BadInput(f"{args.kind} have no {name}", field=f"--{name}", value=value, hint=hint)
        filters[name] = _canonical_name(value) if name == "component" else value
    return filters


def _canonical_name(component: str) -> str:
    try:
        return resolve_component(component).component.name
    except BadInput as error:
        error.field = "--component"
        raise


def _document_name(body: Body) -> str:
    return str(body["metadata"]["name"])


def _join_targets(body: Body) -> str:
    return ",".join(body["spec"]["targets"])


_COLUMNS: dict[str, dict[str, Cell]] = {
    "entries": {
        "entry": _document_name,
        "status": lambda body: body["spec"]["status"],
        "targets": _join_targets,
        "revision": "revision",
        "components": lambda body: " ".join(
            f"{name} {text}" for name, text in body["spec"]["components"].items()
        ),
    },
    "targets": {
        "target": _document_name,
        "mode": lambda body: body["spec"]["policy"]["mode"],
        "revision": "revision",
        "pools": lambda body: " ".join(
            f"{pool['gpu']}/{pool['driver']}" for pool in body["spec"]["pools"]
        ),
    },
    "waivers": {
        "waiver": _document_name,
        "rules": lambda body: ",".join(body["spec"]["rules"]),
        "targets": _join_targets,
        "owner": lambda body: body["spec"]["owner"],
        "expires": lambda body: body["spec"]["expires"],
        "revision": "revision",
    },
}


@action(
    "show",
    "print a document, or a proposal",
    """\
NAME  name of an entry, target or waiver, or id of a proposal
--kind {entry,waiver,target}  kind, if several documents have this name
""",
    FORMAT,
    PLACE,
)
@asking
def show_document(args: argparse.Namespace, gate: Client) -> int:
    """Run ``matrix show``."""
    from compatgate.service.runs.evidence.promotion import EntryRemarks

    if PROPOSAL_ID.fullmatch(args.name) and not args.kind:
        return proposals.show_proposal(args, gate)
    found = _find_documents(args, gate)
    if args.format == "json":
        print_json(found)
        return 0
    print(to_yaml(map(drop_storage_members, found)), end="")
    for body in found:
        for line in msgspec.convert(body, EntryRemarks).lines():
            print(f"# {strip_controls(line)}")
    return 0


@action(
    "delete",
    "delete an entry, waiver or target; earlier revisions keep it",
    """\
NAME  name of an entry, waiver or target
--kind {entry,waiver,target}  kind, if several documents have this name
""",
    AUTHORSHIP,
    FORMAT,
    PLACE,
)
@asking
def delete_document(args: argparse.Namespace, gate: Client) -> int:
    """Run ``matrix delete``."""
    found = _find_documents(args, gate)
    if len(found) > 1:
        kinds = " and ".join(body["kind"] for body in found)
        what = f"{args.name!r} names several documents: {kinds}"
        raise BadInput(what, field="name", value=args.name, hint="choose one with --kind")
    kind, name = found[0]["kind"], _document_name(found[0])
    delete = {
        "Entry": Operations.delete_entry,
        "Waiver": Operations.delete_waiver,
        "Target": Operations.delete_target,
    }[kind]
    revision = ask(gate, delete, name, reason=reason_of(args, f"matrix delete {name}"))["revision"]
    return print_answer(
        args.format,
        {"kind": kind, "name": name, "revision": revision},
        lambda: f"- {kind} {name}\nrevision {revision}: 1 deleted",
    )


def _find_documents(args: argparse.Namespace, gate: Client) -> list[Body]:
    show: dict[str, Any] = {
        "entry": Operations.show_entry,
        "waiver": Operations.show_waiver,
        "target": Operations.show_target,
    }
    if args.kind:
        return [ask(gate, show[args.kind], args.name)]
    found, hints = [], []
    for kind in _KINDS:
        try:
            found.append(ask(gate, show[kind], args.name))
        except NotFound as error:
            hints.append(error.hint)
    if not found:
        hint = next((hint for hint in hints if hint.startswith("did you mean")), "")
        what = f"no entry, waiver or target has the name {args.name!r}"
        raise NotFound(what, field="name", value=args.name, hint=hint)
    return found


@asking
def show_revision(args: argparse.Namespace, gate: Client) -> int:
    """Run ``matrix log REVISION``."""
    row = ask(gate, Operations.show_revision, args.revision)
    if args.format == "json":
        print_json(row)
        return 0
    made = format_json_time(row["made_at"])
    print(f"revision {row['number']}, {made}, {row['author']}: {row['reason']}")
    proposal = row["proposal"]
    print(f"merged by {proposal}" if proposal else "made directly, without a proposal")
    print_changes(row["changes"])
    return 0


LOG: Row = Row(
    "log",
    "list_revisions",
    "list revisions, or show what one changed",
    """\
--name NAME   only revisions of this document
--since TIME  first day, for example 2026-11-03
--until TIME  end time, for example 2026-11-03T18:00:00Z
[REVISION]    revision to show in full
""",
    {
        "revision": "number",
        "made": time_of("made_at"),
        "author": "author",
        "action": "action",
        "documents": "count",
        "proposal": lambda row: row["proposal"] or "direct",
        "reason": "reason",
    },
    "no revisions",
    settings={"revision": {"type": int}},
    act=lambda args: (
        print_row(args.format, LOG, LOG.ask(args)) if args.revision is None else show_revision(args)
    ),
)
