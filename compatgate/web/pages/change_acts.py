"""Handle the forms of the workbench: make one document of a form; check, store, propose it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from datetime import timedelta
from typing import Any

from flask import request
from msgspec import Struct

from compatgate.catalog import read_source
from compatgate.core.facts import Facts
from compatgate.discovery.drafts import Draft, draft_target
from compatgate.discovery.pasted import read_pasted
from compatgate.documents.edits import merge_into_text
from compatgate.documents.sources import Problems, Source
from compatgate.documents.specs import API_VERSION, Kind, PoolSpec
from compatgate.documents.text import RawDocument, read_nodes, to_yaml
from compatgate.errors import BadInput, Conflict, ManyProblems
from compatgate.kit import clock
from compatgate.kit.http.links import link
from compatgate.kit.principal import Authorship
from compatgate.service.matrix.documents.imports import ImportResult
from compatgate.service.matrix.proposals.schemas import ProposalRequest, ProposedFile
from compatgate.web.page import PageRequest, Redirect, expected_revision
from compatgate.web.pages.form_fields import Body, show_fields, write_fields

FILE = "YAML"
"""Name of the text in errors."""
PLURALS: dict[Kind, str] = {"Target": "targets", "Entry": "entries", "Waiver": "waivers"}
DEFAULT_DAYS = 7
"""Days until the last day that the form of a waiver proposes."""
_NOT_IN_A_NAME = re.compile(r"[^a-z0-9.]+")
_LONGEST_DRAFT = 60
_POOL = frozenset(PoolSpec.__struct_encode_fields__)


class EditedDocument(Struct, frozen=True):
    """A document under edit, as YAML and as plain data, which is not checked.

    The text is as typed but for the values that a changed field wrote. ``rewritten``: one did not
    fit into the text, which lost its comments.
    """

    text: str
    document: Body
    rewritten: bool = False


def start_document(kind: Kind) -> Body:
    """Return the document that a new form begins with."""
    specs: dict[Kind, Body] = {
        "Target": {"policy": {"mode": "enforce", "onUnknown": "fail"}},
        "Entry": {"status": "candidate"},
        "Waiver": {},
    }
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {}, "spec": specs[kind]}


def edit_document(kind: Kind, form: Mapping[str, str], most_values: int) -> EditedDocument:
    """Return the document that a form describes.

    The YAML decides, but for fields that were changed since the form was shown. Comments and order
    of the YAML stay. A form without YAML has fields alone.
    """
    text = form.get("documents", "").replace("\r\n", "\n")
    before = _read_document(text, most_values) if text.strip() else start_document(kind)
    shown = start_document(kind)
    if "documents" in form:
        with suppress(BadInput, ManyProblems):
            shown = _read_document(form.get("shown", "").replace("\r\n", "\n"), most_values)
    document = deepcopy(before)
    changed = write_fields(kind, document, shown, form)
    if not text.strip():
        return EditedDocument(to_yaml([document]), document)
    edited = EditedDocument(text, before)
    return write_text(edited, document) if changed else edited


def write_text(edited: EditedDocument, after: Body) -> EditedDocument:
    """Return a document with other data; its text differs only where the data differs."""
    merged = merge_into_text(edited.text, edited.document, after)
    if merged is not None:
        with suppress(BadInput, ManyProblems):  # rather lose the comments than what was typed
            if _read_document(merged, None) == after:
                return EditedDocument(merged, after, edited.rewritten)
    return EditedDocument(to_yaml([after]), after, edited.rewritten or "#" in edited.text)


class NodeDraft(Struct, frozen=True):
    """Pools that a text describes, as far as they are known, with notes for who checks them."""

    pools: tuple[dict[str, Any], ...]
    notes: tuple[str, ...] = ()


def draft_pools(text: str, facts: Facts) -> NodeDraft:
    """Read pools from a text; each states its number of nodes, for a person to correct."""
    pasted = read_pasted(text, facts, read_source("image_signals"))
    if not pasted.pools:
        outputs = "nvidia-smi, of kubectl get nodes -o yaml or -o json"
        hint = f"paste the output of {outputs}, the labels of a node, or a probe"
        raise BadInput("describes no nodes", field="pasted", hint=hint)
    draft = pasted.draft or Draft(())
    pools = pasted.pools
    if pasted.draft:
        pools = tuple(draft_target(draft, "draft", facts.gpus)["spec"]["pools"])
    counted = [{**pool, "count": pool.get("count", 1)} for pool in pools]
    stated = [{key: one[key] for key in one if key in _POOL} for one in counted]
    missing = [
        f"Pool {pool.name}: {name} is not known: {pool.why.get(name, 'the text does not name it')}."
        for pool in draft.pools
        for name in pool.missing
    ]
    return NodeDraft(tuple(stated), (*missing, *draft.notes))


def replace_pools(edited: EditedDocument, pools: Sequence[Body]) -> EditedDocument:
    """Return the document of a target with other pools."""
    spec = edited.document.get("spec")
    others = spec if isinstance(spec, dict) else {}
    rest = {key: value for key, value in others.items() if key != "pools"}
    return write_text(edited, {**edited.document, "spec": {"pools": list(pools), **rest}})


def show_form(kind: Kind, edited: EditedDocument) -> dict[str, str]:
    """Return what a form shows of a document: its fields and its YAML."""
    return {
        **show_fields(kind, edited.document),
        "documents": edited.text,
        "shown": to_yaml([edited.document]),
    }


def _read_document(text: str, most_values: int | None) -> Body:
    """Read one YAML document as plain data; numbers with a point stay as written."""
    problems = Problems()
    found = list(read_nodes(Source(FILE, text, most_values), problems))
    problems.raise_if_any()
    if len(found) != 1 or not isinstance(found[0].value, dict):
        hint = "import several documents on the page Import"
        raise BadInput("must contain exactly one document", field=FILE, hint=hint)
    value: Body = _keep_written(found[0], found[0].value, ())
    return value


def _keep_written(raw: RawDocument, value: Any, path: tuple[str | int, ...]) -> Any:
    """Return a value without floats: the version 550.10 is not the number 550.1."""
    if isinstance(value, dict):
        return {key: _keep_written(raw, one, (*path, key)) for key, one in value.items()}
    if isinstance(value, list):
        return [_keep_written(raw, one, (*path, at)) for at, one in enumerate(value)]
    if isinstance(value, float):
        return raw.written(path) or str(value)
    return value


def plan_document(ask: PageRequest[Any], kind: Kind, text: str, name: str | None) -> ImportResult:
    """Check a document without storing it; mistakes name their line of the YAML."""
    sources = [Source(FILE, text, ask.service.settings.max_values)]
    planned = ask.rooms.matrix.import_documents(sources, check_author(ask), dry_run=True)
    if any(change.kind != kind for change in planned.changes):
        raise BadInput("the document has another kind", field="kind", hint=f"set kind to {kind}")
    if name is None:
        if planned.unchanged or any(change.action != "create" for change in planned.changes):
            hint = "choose another name, or change the document that has it"
            raise Conflict(f"a {kind.lower()} with this name exists", field="name", hint=hint)
    elif any(change.name != name for change in planned.changes):
        hint = f"keep {name}, or make a new {kind.lower()}"
        raise Conflict("the name of a document cannot change", field="name", hint=hint)
    return planned


def check_author(ask: PageRequest[Any]) -> Authorship:
    """Return the author of a check, which needs no reason yet."""
    return Authorship(ask.principal.name, "check", ask.principal, "force" in ask.form)


def store_document(ask: PageRequest[Any], kind: Kind, document: Body, name: str | None) -> Redirect:
    """Create a document, or change the stored one unless someone else did meanwhile."""
    if name is None:
        made = ask.rooms.matrix.create(kind, document, ask.by())
        done = f"Created {made.name} in revision {made.revision}."
    else:
        expected = expected_revision(ask.form)
        made = ask.rooms.matrix.change(kind, name, document, ask.by(), expected=expected)
        done = f"Changed {made.name} in revision {made.revision}."
    return Redirect(link(PLURALS[kind], made.name), done=add_warnings(done, made.warnings))


def add_warnings(done: str, warnings: Sequence[str]) -> str:
    """Return what was done, with what ``force`` let through."""
    return " ".join([done, *(f"Warning: {text}." for text in warnings)])


def propose_text(ask: PageRequest[Any], text: str) -> Redirect:
    """Propose documents."""
    ask.principal.require("propose")
    wanted = ProposalRequest(files=[ProposedFile("documents", text)])
    view = ask.rooms.proposals.propose(wanted, ask.by(), most=ask.service.settings.max_values)
    done = add_warnings(f"Proposed {view.row.id}.", view.warnings)
    return Redirect(link("proposals", view.row.id), done)


def draft_waiver(ask: PageRequest[Any], given: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of a new waiver: a free name, its owner, and an end within a week."""
    expires = (clock.today() + timedelta(days=DEFAULT_DAYS)).isoformat()
    if not any(given.values()):
        return {**given, "expires": expires}
    what = given["image"].rpartition("/")[2] or " ".join(given["components"].splitlines()[-1:])
    words = _NOT_IN_A_NAME.sub("-", f"{what} {given['targets'].split(',')[0]}".lower())
    taken = ask.gate.snapshot().waivers
    base = words[:_LONGEST_DRAFT].strip("-.") or "waiver"
    names = (base if n == 1 else f"{base}-{n}" for n in range(1, len(taken) + 2))
    name = next(one for one in names if one not in taken)
    return {"name": name, "owner": ask.principal.name, "expires": expires, **given}


def complete_waiver(edited: EditedDocument, reason: str, *, final: bool) -> EditedDocument:
    """Return a waiver with a reason: where it states none, that of the change."""
    spec = edited.document.get("spec")
    reason = reason.strip() or ("" if final else "not stated yet")
    if not isinstance(spec, dict) or spec.get("reason") or not reason:
        return edited
    return write_text(edited, {**edited.document, "spec": {**spec, "reason": reason}})


def read_uploads() -> str:
    """Return the text of the uploaded files, joined as documents of one text."""
    texts = []
    for file in request.files.getlist("files"):
        file.seek(0)
        try:
            text = file.read().decode("utf-8-sig")
        except UnicodeDecodeError:
            raise BadInput("is not UTF-8 text", field="files", value=file.filename) from None
        if text.strip():
            texts.append(text if text.endswith("\n") else f"{text}\n")
    return "---\n".join(texts)
