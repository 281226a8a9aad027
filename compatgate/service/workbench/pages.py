"""Create targets and entries from fields or YAML; import files after a look at the difference.

Each form comes back with everything that was typed, whatever was wrong with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from flask import request
from msgspec import Meta, Struct

from compatgate.documents.sources import Source
from compatgate.documents.specs import Change, Kind
from compatgate.errors import BadInput, CompatgateError, Conflict
from compatgate.kit.http.links import link
from compatgate.service.matrix.imports import ImportResult
from compatgate.service.matrix.service import Authorship
from compatgate.service.proposals.schemas import ProposalRequest, ProposedFile
from compatgate.service.web.page import MAX_CHOICES, HtmlPage, Page, PageRequest, Redirect, page
from compatgate.service.workbench.editing import (
    FILE,
    EditedDocument,
    edit_document,
    replace_pools,
    show_form,
    start_document,
)
from compatgate.service.workbench.form_fields import Body, list_rows
from compatgate.service.workbench.node_texts import NodeDraft, draft_pools

_PLURALS = {"Target": "targets", "Entry": "entries"}
_MODES = {
    "enforce": "deny what fails",
    "warn": "allow, with a warning",
    "audit": "allow, and only record",
}
_UNKNOWN = {"fail": "stop", "warn": "allow, with a warning", "allow": "allow"}
_STATUSES = ("candidate", "blessed", "deprecated", "revoked")
_MAX_CHANGES = 50
"""Documents whose differences the page of an import shows."""


class FormState(Struct, frozen=True):
    """What a form shows besides its fields.

    Attributes:
        error: says what was wrong.
        read: pools that were read from pasted text.
        planned: what creating the document would change.
    """

    error: CompatgateError | None = None
    read: NodeDraft | None = None
    planned: ImportResult | None = None


@page("/new-target", scope="bless", nav="targets")
def begin_target(ask: PageRequest[Any]) -> HtmlPage:
    """Show the form of a new target."""
    return _begin(ask, "Target", {})


_Word = Annotated[str, Meta(max_length=2000)]


class EntryStart(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Initial values of the form; other pages link to it with a target and versions."""

    targets: _Word = ""
    components: _Word = ""
    gpus: _Word = ""


@page("/new-entry", scope="bless", nav="entries", query=EntryStart)
def begin_entry(ask: PageRequest[EntryStart]) -> HtmlPage:
    """Show the form of a new entry."""
    query = ask.query
    given = {"targets": query.targets, "components": query.components, "gpus": query.gpus}
    return _begin(ask, "Entry", {"status": "candidate", **given})


def _begin(ask: PageRequest[Any], kind: Kind, given: Mapping[str, str]) -> HtmlPage:
    if not any(given.values()):
        document = start_document(kind)
        return _form_page(ask, kind, show_form(kind, EditedDocument("", document)), FormState())
    try:
        edited = edit_document(kind, given, ask.service.settings.max_values)
    except CompatgateError as error:
        return _form_page(ask, kind, given, FormState(error))
    return _form_page(ask, kind, show_form(kind, edited), FormState())


@page("/new-target", scope="bless", method="POST", nav="targets")
def create_target(ask: PageRequest[Any]) -> HtmlPage | Redirect:
    """Read pasted text, check a target, create it, or propose it."""
    return _act(ask, "Target")


@page("/new-entry", scope="bless", method="POST", nav="entries")
def create_entry(ask: PageRequest[Any]) -> HtmlPage | Redirect:
    """Check an entry, create it, or propose it."""
    return _act(ask, "Entry")


def _act(ask: PageRequest[Any], kind: Kind) -> HtmlPage | Redirect:
    form, what = ask.form, ask.form.get("what", "create")
    state = FormState()
    try:
        edited = edit_document(kind, form, ask.service.settings.max_values)
    except CompatgateError as error:
        return _form_page(ask, kind, form, FormState(error))
    try:
        if what == "read" and kind == "Target":
            text = _uploaded_text() or form.get("pasted", "")
            found = draft_pools(text, ask.gate.facts)
            edited, state = replace_pools(edited, found.pools), FormState(read=found)
        elif what == "check":
            state = FormState(planned=_plan(ask, kind, edited.text))
        elif what == "propose":
            _plan(ask, kind, edited.text)
            return _propose(ask, edited.text)
        elif what == "create":
            _plan(ask, kind, edited.text)
            return _create(ask, kind, edited.document)
        else:
            hint = "one of read, check, create, propose"
            raise BadInput("is not an action", field="what", value=what, hint=hint)
    except CompatgateError as error:
        state = FormState(error)
    shown = show_form(kind, edited)
    shown |= {name: form[name] for name in ("pasted", "reason") if name in form}
    return _form_page(ask, kind, shown, state)


def _plan(ask: PageRequest[Any], kind: Kind, text: str) -> ImportResult:
    """Check a document without creating it; mistakes name their line of the YAML.

    Raises:
        ManyProblems: every mistake.
        BadInput: the document is of another kind.
        Conflict: the name is taken.
        AccessRefused: the caller may not create it.
    """
    sources = [Source(FILE, text, ask.service.settings.max_values)]
    planned = ask.gate.matrix.import_documents(sources, _checking(ask), dry_run=True)
    if planned.unchanged or any(change.action != "create" for change in planned.changes):
        hint = "choose another name, or change the document that has it"
        raise Conflict(f"a {kind.lower()} of this name exists", field="name", hint=hint)
    if any(change.kind != kind for change in planned.changes):
        raise BadInput("the document is of another kind", field="kind", hint=f"write {kind}")
    return planned


def _checking(ask: PageRequest[Any]) -> Authorship:
    """Return the author of a check, which needs no reason yet."""
    return Authorship(ask.principal.name, "check", ask.principal)


def _create(ask: PageRequest[Any], kind: Kind, document: Body) -> Redirect:
    made = ask.gate.matrix.create(kind, document, ask.by())
    place = link(_PLURALS[kind], made.name)
    return Redirect(place, done=f"Created {made.name} in revision {made.revision}.")


def _propose(ask: PageRequest[Any], text: str) -> Redirect:
    ask.principal.require("propose")
    wanted = ProposalRequest(files=[ProposedFile("documents", text)])
    view = ask.gate.proposals.propose(wanted, ask.by(), most=ask.service.settings.max_values)
    return Redirect(link("proposals", view.row.id), f"Proposed {view.row.id}.")


def _form_page(
    ask: PageRequest[Any], kind: Kind, typed: Mapping[str, str], state: FormState
) -> HtmlPage:
    context = {
        "kind": kind,
        "typed": typed,
        "error": state.error,
        "read": state.read,
        "planned": state.planned,
        "rows": list_rows(typed),
        "modes": _MODES,
        "unknown": _UNKNOWN,
        "statuses": _STATUSES,
        "targets": sorted(ask.gate.snapshot().documents)[:MAX_CHOICES],
    }
    status = state.error.status if state.error else 200
    one = kind.lower()
    return HtmlPage(f"new-{one}.html", f"New {one}", context, status=status)


@page("/import", scope="bless", nav="revisions")
def begin_import(ask: PageRequest[Any]) -> HtmlPage:
    """Show the form of an import."""
    return _import_page(ask, {})


@page("/import", scope="bless", method="POST", nav="revisions")
def import_files(ask: PageRequest[Any]) -> HtmlPage | Redirect:
    """Show what pasted or uploaded documents would change, import them, or propose them."""
    what = ask.form.get("what", "check")
    typed = {**ask.form}
    try:
        typed["documents"] = text = _uploaded_text() or ask.form.get("documents", "")
        if not text.strip():
            hint = "paste YAML or JSON, or choose files"
            raise BadInput("there are no documents", field="documents", hint=hint)
        sources = [Source(FILE, text.replace("\r\n", "\n"), ask.service.settings.max_values)]
        if what == "propose":
            return _propose(ask, text)
        if what not in ("check", "import"):
            hint = "one of check, import, propose"
            raise BadInput("is not an action", field="what", value=what, hint=hint)
        by = _checking(ask) if what == "check" else ask.by()
        result = ask.gate.matrix.import_documents(sources, by, dry_run=what == "check")
    except CompatgateError as error:
        return _import_page(ask, typed, error=error)
    if what == "check" or result.revision is None:
        return _import_page(ask, typed, planned=result)
    count = len(result.changes)
    done = f"Imported {count} document{'' if count == 1 else 's'} as revision {result.revision}."
    return Redirect(link("revisions", result.revision), done=done)


def _import_page(
    ask: PageRequest[Any],
    typed: Mapping[str, str],
    *,
    planned: ImportResult | None = None,
    error: CompatgateError | None = None,
) -> HtmlPage:
    changes: tuple[Change, ...] = planned.changes if planned else ()
    context = {
        "typed": typed,
        "error": error,
        "planned": planned,
        "changes": changes[:_MAX_CHANGES],
        "left": max(0, len(changes) - _MAX_CHANGES),
    }
    return HtmlPage("import.html", "Import", context, status=error.status if error else 200)


def _uploaded_text() -> str:
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


PAGES: tuple[Page, ...] = (
    begin_target,
    create_target,
    begin_entry,
    create_entry,
    begin_import,
    import_files,
)
"""The pages, for the table of routes."""
