"""Run ``compatgate matrix`` list, show, delete and log: documents and revisions."""

from __future__ import annotations

import argparse
from typing import Any

import msgspec

from compatgate.cli.commands import Cell, Row, format_rows, members, time_of
from compatgate.cli.gate.opening import (
    RUN_MEMBERS,
    Client,
    Operations,
    asking,
    drop_members,
    drop_storage_members,
    gate_of,
)
from compatgate.cli.matrix.files import format_changes
from compatgate.core.components import resolve_component
from compatgate.documents.text import to_yaml
from compatgate.errors import BadInput, NotFound
from compatgate.gate_client import Body, ask, ask_all
from compatgate.kit.cli.options import AUTHORSHIP, LIMIT, reason_of
from compatgate.kit.cli.output import format_json_time, print_answer
from compatgate.kit.cli.terminal import strip_controls
from compatgate.kit.operations import load_operations

_FILTERS = ("target", "status", "component", "label", "owner", "search")
_KIND = "--kind {entry,waiver,target}  kind, if several documents have this name"


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


@asking(
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
    LIMIT,
)
def show_list(args: argparse.Namespace, gate: Client) -> int:
    """List documents of one kind; a filter that the kind lacks is refused."""
    name = f"list_{args.kind}"
    taken = {one.name for one in load_operations()[name].arguments}
    filters = {one: getattr(args, one) for one in _FILTERS if getattr(args, one) is not None}
    for one, value in filters.items():
        if one not in taken:
            hint = f"filter {args.kind} by {', '.join(f for f in _FILTERS if f in taken)}"
            raise BadInput(f"{args.kind} have no {one}", field=f"--{one}", value=value, hint=hint)
    if args.component is not None:
        try:
            filters["component"] = resolve_component(args.component).component.name
        except BadInput as error:
            error.field = "--component"
            raise
    listing: Any = getattr(Operations, name)
    found = ask_all(gate, args.limit, listing, **filters)
    return print_answer(
        args.format,
        [drop_members(RUN_MEMBERS, body) for body in found],
        format_rows(found, _COLUMNS[args.kind]) if found else f"no {args.kind}",
    )


@asking(
    "print a document, or a proposal",
    "NAME  name of an entry, target or waiver, or id of a proposal",
    _KIND,
)
def show_document(args: argparse.Namespace, gate: Client) -> int:
    """Print the documents of a name, with what canary runs say of entries as comments."""
    from compatgate.service.matrix.proposals.schemas import PROPOSAL_ID
    from compatgate.service.runs.evidence.promotion import EntryRemarks

    if PROPOSAL_ID.fullmatch(args.name) and not args.kind:
        from compatgate.cli.matrix.proposals import format_proposal

        one = ask(gate, Operations.show_proposal, args.name)
        return print_answer(args.format, one, lambda: format_proposal(one))
    found = _find_documents(args, gate)
    remarks = [line for body in found for line in msgspec.convert(body, EntryRemarks).lines()]
    text = to_yaml(map(drop_storage_members, found))
    text += "".join(f"# {strip_controls(line)}\n" for line in remarks)
    return print_answer(args.format, found, text.removesuffix("\n"))


@asking(
    "delete an entry, waiver or target; earlier revisions keep it",
    "NAME  name of an entry, waiver or target",
    _KIND,
    AUTHORSHIP,
)
def delete_document(args: argparse.Namespace, gate: Client) -> int:
    """Delete the one document of a name."""
    found = _find_documents(args, gate)
    if len(found) > 1:
        kinds = " and ".join(body["kind"] for body in found)
        what = f"{args.name!r} names several documents: {kinds}"
        raise BadInput(what, field="name", value=args.name, hint="choose one with --kind")
    kind, name = found[0]["kind"], _document_name(found[0])
    delete: Any = getattr(Operations, f"delete_{kind.lower()}")
    revision = ask(gate, delete, name, reason=reason_of(args, f"matrix delete {name}"))["revision"]
    answer = {"kind": kind, "name": name, "revision": revision}
    return print_answer(args.format, answer, f"- {kind} {name}\nrevision {revision}: 1 deleted")


def _find_documents(args: argparse.Namespace, gate: Client) -> list[Body]:
    found, hints = [], []
    for kind in [args.kind] if args.kind else ("entry", "waiver", "target"):
        show: Any = getattr(Operations, f"show_{kind}")
        try:
            found.append(ask(gate, show, args.name))
        except NotFound as error:
            if args.kind:
                raise
            hints.append(error.hint)
    if not found:
        hint = next((hint for hint in hints if hint.startswith("did you mean")), "")
        what = f"no entry, waiver or target has the name {args.name!r}"
        raise NotFound(what, field="name", value=args.name, hint=hint)
    return found


def _format_revision(row: Body) -> str:
    proposal = row["proposal"]
    return "\n".join(
        [
            f"revision {row['number']}, {format_json_time(row['made_at'])}, {row['author']}:"
            f" {row['reason']}",
            f"merged by {proposal}" if proposal else "made directly, without a proposal",
            *format_changes(row["changes"]),
        ]
    )


def _show_log(args: argparse.Namespace) -> Any:
    if args.revision is None:
        return LOG.ask(args)
    with gate_of(args) as gate:
        return ask(gate, Operations.show_revision, args.revision)


LOG = Row(
    "list_revisions",
    """\
--name NAME   only revisions of this document
--since TIME  first day, for example 2026-11-03
--until TIME  end time, for example 2026-11-03T18:00:00Z
[REVISION]    revision to show in full
""",
    {
        "revision": "number",
        "made": time_of("made_at"),
        **members("author", "action"),
        "documents": "count",
        "proposal": lambda row: row["proposal"] or "direct",
        "reason": "reason",
    },
    text=_format_revision,
    settings={"revision": {"type": int}},
    answer=_show_log,
    summary="list revisions, or show what one changed",
)
