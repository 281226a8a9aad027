"""Handle the forms of the workbench: check, store or propose a document."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from flask import request

from compatgate.documents.sources import Source
from compatgate.documents.specs import Kind
from compatgate.errors import BadInput, Conflict
from compatgate.kit import clock
from compatgate.kit.http.links import link
from compatgate.service.matrix.imports import ImportResult
from compatgate.service.matrix.service import Authorship
from compatgate.service.proposals.schemas import ProposalRequest, ProposedFile
from compatgate.service.web.page import PageRequest, Redirect, expected_revision
from compatgate.service.workbench.editing import FILE, EditedDocument, write_text
from compatgate.service.workbench.form_fields import Body

PLURALS: dict[Kind, str] = {"Target": "targets", "Entry": "entries", "Waiver": "waivers"}
DEFAULT_DAYS = 7
"""Days until the last day that the form of a waiver proposes."""
_NOT_IN_A_NAME = re.compile(r"[^a-z0-9.]+")
_LONGEST_DRAFT = 60


def plan_document(ask: PageRequest[Any], kind: Kind, text: str, name: str | None) -> ImportResult:
    """Check a document without storing it; mistakes name their line of the YAML.

    Args:
        ask: the request.
        kind: of the document.
        text: its YAML.
        name: of the stored document that it changes; None: it is new.

    Raises:
        ManyProblems: every mistake.
        BadInput: the document is of another kind.
        Conflict: the name is taken, or a changed document has another name.
        AccessRefused: the caller may not make the change.
    """
    sources = [Source(FILE, text, ask.service.settings.max_values)]
    planned = ask.gate.matrix.import_documents(sources, check_author(ask), dry_run=True)
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
    return Authorship(ask.principal.name, "check", ask.principal)


def store_document(ask: PageRequest[Any], kind: Kind, document: Body, name: str | None) -> Redirect:
    """Create a document, or change the stored one unless someone else did meanwhile."""
    if name is None:
        made = ask.gate.matrix.create(kind, document, ask.by())
        done = f"Created {made.name} in revision {made.revision}."
    else:
        expected = expected_revision(ask.form)
        made = ask.gate.matrix.change(kind, name, document, ask.by(), expected=expected)
        done = f"Changed {made.name} in revision {made.revision}."
    return Redirect(link(PLURALS[kind], made.name), done=done)


def propose_text(ask: PageRequest[Any], text: str) -> Redirect:
    """Propose documents."""
    ask.principal.require("propose")
    wanted = ProposalRequest(files=[ProposedFile("documents", text)])
    view = ask.gate.proposals.propose(wanted, ask.by(), most=ask.service.settings.max_values)
    return Redirect(link("proposals", view.row.id), f"Proposed {view.row.id}.")


def draft_waiver(ask: PageRequest[Any], given: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of a new waiver: a free name, its owner, and an end within a week.

    Args:
        ask: the request; the caller owns the waiver.
        given: rules, targets, image and components, as the page of a verdict states them.
    """
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
    """Return a waiver with a reason: where it states none, that of the change.

    Args:
        edited: the document.
        reason: of the change.
        final: it is about to be stored; else a missing reason does not hinder the check.
    """
    spec = edited.document.get("spec")
    reason = reason.strip() or ("" if final else "not stated yet")
    if not isinstance(spec, dict) or spec.get("reason") or not reason:
        return edited
    return write_text(edited, {**edited.document, "spec": {**spec, "reason": reason}})


def read_uploads() -> str:
    """Return the text of the uploaded files, joined as documents of one text.

    Raises:
        BadInput: a file is not UTF-8 text.
    """
    texts = []
    for file in request.files.getlist("files"):
        try:
            text = file.read().decode("utf-8-sig")
        except UnicodeDecodeError:
            raise BadInput("is not UTF-8 text", field="files", value=file.filename) from None
        if text.strip():
            texts.append(text if text.endswith("\n") else f"{text}\n")
    return "---\n".join(texts)
