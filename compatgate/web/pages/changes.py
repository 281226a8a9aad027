"""Change the matrix in the browser: forms for a target, an entry or a waiver, and imports.

Fields and YAML stand side by side. Before a change is made the page shows what it does. Each form
comes back with everything that was typed, whatever was wrong with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal

from flask import request
from msgspec import Meta, Struct
from msgspec.structs import asdict

from compatgate.core.rules import RULES
from compatgate.documents.sources import Source
from compatgate.documents.specs import Change, Kind
from compatgate.documents.text import to_yaml
from compatgate.errors import BadInput, CompatgateError, Conflict
from compatgate.kit import clock
from compatgate.kit.http.links import link
from compatgate.kit.http.route import NoQuery
from compatgate.kit.ui.filters import count_things
from compatgate.service.changes.comparison.effects import ChangeEffects, preview_effects
from compatgate.service.matrix.documents.imports import ImportResult
from compatgate.web.page import (
    MAX_CHOICES,
    HtmlPage,
    Page,
    PageRequest,
    Redirect,
    expected_revision,
    page,
    read_action,
)
from compatgate.web.pages.change_acts import (
    FILE,
    PLURALS,
    EditedDocument,
    NodeDraft,
    add_warnings,
    check_author,
    complete_waiver,
    draft_pools,
    draft_waiver,
    edit_document,
    plan_document,
    propose_text,
    read_uploads,
    replace_pools,
    show_form,
    start_document,
    store_document,
)
from compatgate.web.pages.form_fields import find_wrong_fields, list_holders, list_rows

_MODES = {
    "enforce": "deny what fails",
    "warn": "allow, with a warning",
    "audit": "allow, and only record",
}
_UNKNOWN = {"fail": "stop", "warn": "allow, with a warning", "allow": "allow"}
_STATUSES = ("candidate", "blessed", "deprecated", "revoked")
_ACTIONS = ("read", "check", "effects", "create", "propose")
_MAX_MEANWHILE = 10
"""Revisions that a form shows which changed its document meanwhile."""
_MAX_CHANGES = 50
"""Documents whose differences the page of an import shows."""
_Word = Annotated[str, Meta(max_length=2000)]


class FormPlace(Struct, frozen=True):
    """The form of a document: a new one, or a stored one with the revision that the form shows."""

    kind: Kind
    name: str | None = None
    revision: int | None = None

    @property
    def path(self) -> tuple[str, ...]:
        """Return the address of the form."""
        if self.name is None:
            return (f"new-{self.kind.lower()}",)
        return (PLURALS[self.kind], self.name, "edit")


class FormState(Struct, frozen=True):
    """What a form shows besides its fields: pools ``read`` from pasted text, and the plan.

    ``rewritten``: the YAML lost its comments; ``meanwhile``: revisions that changed the document
    since the form was opened, newest first.
    """

    error: CompatgateError | None = None
    read: NodeDraft | None = None
    planned: ImportResult | None = None
    effects: ChangeEffects | None = None
    rewritten: bool = False
    meanwhile: Sequence[Any] = ()


class FormStart(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Initial values of a form; the pages of verdicts and targets link to it with some."""

    rules: _Word = ""
    targets: _Word = ""
    image: _Word = ""
    components: _Word = ""
    gpus: _Word = ""


class StatusStart(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The status that the form of a stored entry begins with."""

    status: Literal["", "candidate", "blessed", "deprecated", "revoked"] = ""


def _form_pages(kind: Kind, edit_query: type[Struct] = NoQuery) -> tuple[Page, ...]:
    def begin(ask: PageRequest[FormStart]) -> HtmlPage:
        place, start = FormPlace(kind), asdict(ask.query)
        given = {name: text for name, text in start.items() if text}
        if kind == "Waiver":
            given = draft_waiver(ask, start)
        elif given:
            given["status"] = "candidate"
        if not given:
            document = start_document(kind)
            edited = EditedDocument(to_yaml([document]), document)
            return _form_page(ask, place, show_form(kind, edited), FormState())
        try:
            edited = edit_document(kind, given, ask.service.settings.max_values)
        except CompatgateError as error:
            return _form_page(ask, place, given, FormState(error))
        return _form_page(ask, place, show_form(kind, edited), _plan_begun(ask, place, edited))

    def create(ask: PageRequest[Any]) -> HtmlPage | Redirect:
        return _act(ask, FormPlace(kind))

    def edit(ask: PageRequest[Any]) -> HtmlPage:
        row = ask.rooms.matrix.get(kind, ask.args["name"])
        place = FormPlace(kind, row.name, row.revision)
        shown = show_form(kind, EditedDocument(to_yaml([row.document]), row.document))
        status = getattr(ask.query, "status", "")
        if not status:
            return _form_page(ask, place, shown, FormState())
        form = {**shown, "status": status}
        edited = edit_document(kind, form, ask.service.settings.max_values)
        return _form_page(ask, place, show_form(kind, edited), _plan_begun(ask, place, edited))

    def change(ask: PageRequest[Any]) -> HtmlPage | Redirect:
        return _act(ask, FormPlace(kind, ask.args["name"]))

    one, several = kind.lower(), PLURALS[kind]
    for handler in (begin, create, edit, change):
        handler.__name__ += f"_{one}_form"  # which names the page
    about: dict[str, Any] = {"scope": "bless", "nav": several}
    new, stored = f"/new-{one}", f"/{several}/<name>/edit"
    return (
        page(new, query=FormStart, **about)(begin),
        page(new, method="POST", **about)(create),
        page(stored, query=edit_query, **about)(edit),
        page(stored, method="POST", **about)(change),
    )


TARGET_FORM = _form_pages("Target")
ENTRY_FORM = _form_pages("Entry", StatusStart)
WAIVER_FORM = _form_pages("Waiver")


def _plan_begun(ask: PageRequest[Any], place: FormPlace, edited: EditedDocument) -> FormState:
    """Return the plan of what a form begins with; nobody has typed yet, so nothing is wrong."""
    complete = _complete(place, edited, "", final=False)
    try:
        return FormState(planned=plan_document(ask, place.kind, complete.text, place.name))
    except CompatgateError:
        return FormState()


def _act(ask: PageRequest[Any], place: FormPlace) -> HtmlPage | Redirect:
    form, what, kind = ask.form, ask.form.get("what", "create"), place.kind
    if _is_live():  # what the page asks for by itself never changes anything
        what = "effects" if request.headers.get("HX-Target") == "effects" else "check"
    if place.name is not None:
        ask.rooms.matrix.get(kind, place.name)
    try:
        edited = edit_document(kind, form, ask.service.settings.max_values)
    except CompatgateError as error:
        return _form_page(ask, place, form, FormState(error))
    try:
        if what == "read" and kind == "Target":
            found = draft_pools(read_uploads() or form.get("pasted", ""), ask.gate.facts)
            edited, state = replace_pools(edited, found.pools), FormState(read=found)
        elif what in _ACTIONS:
            reason, final = form.get("reason", ""), what in ("create", "propose")
            complete = _complete(place, edited, reason, final=final)
            planned = plan_document(ask, kind, complete.text, place.name)
            if what == "propose":
                return propose_text(ask, complete.text)
            if what == "create":
                return store_document(ask, kind, complete.document, place.name)
            effects = None
            if what == "effects":
                effects = preview_effects(ask.gate, planned.edits, ask.principal.name)
            state = FormState(planned=planned, effects=effects, rewritten=edited.rewritten)
        else:
            hint = f"one of {', '.join(_ACTIONS)}"
            raise BadInput("is not an action", field="what", value=what, hint=hint)
    except CompatgateError as error:
        meanwhile: Sequence[Any] = ()
        if isinstance(error, Conflict) and place.name is not None:
            known = expected_revision(form)
            history = ask.rooms.matrix.list_changes(kind, place.name, limit=_MAX_MEANWHILE)
            meanwhile = [one for one in history.items if one.number > known]
        state = FormState(error, rewritten=edited.rewritten, meanwhile=meanwhile)
    shown = show_form(kind, edited)
    shown |= {
        name: form[name] for name in ("pasted", "reason", "revision", "force") if name in form
    }
    if state.meanwhile:  # they are shown: to save again is to know of them
        shown["revision"] = str(state.meanwhile[0].number)
    return _form_page(ask, place, shown, state)


def _is_live() -> bool:
    """Tell whether the page asks while somebody types, and takes a part of the answer."""
    return request.headers.get("HX-Request") == "true"


def _complete(
    place: FormPlace, edited: EditedDocument, reason: str, *, final: bool
) -> EditedDocument:
    return complete_waiver(edited, reason, final=final) if place.kind == "Waiver" else edited


def _form_page(
    ask: PageRequest[Any], place: FormPlace, typed: Mapping[str, str], state: FormState
) -> HtmlPage:
    kind, error = place.kind, state.error
    live = _is_live()
    context = {
        "place": place,
        "kind": kind,
        "typed": {"revision": place.revision, **typed},
        "state": state,
        "live": live,
        "wrong": find_wrong_fields(kind, typed, error) if error else {},
        "wrongs": [f"#wrong-{name}" for name in (*list_holders(kind, typed), "yaml")],
        "planned": state.planned,
        "rows": list_rows(typed),
        "modes": _MODES,
        "unknown": _UNKNOWN,
        "statuses": _STATUSES,
        "rules": RULES,
        "today": clock.today().isoformat(),
        "targets": sorted(ask.gate.snapshot().documents)[:MAX_CHOICES],
        "crumb": link(PLURALS[kind]),
    }
    title = f"New {kind.lower()}" if place.name is None else f"Change {place.name}"
    return HtmlPage("change.html", title, context, error=None if live else error)


def _import_page(ask: PageRequest[Any], planned: ImportResult | None = None) -> HtmlPage:
    changes: tuple[Change, ...] = planned.changes if planned else ()
    typed = ask.form
    with suppress(BadInput):  # files that are no text
        typed = ask.form | {"documents": _posted_documents(ask)}
    context = {
        "typed": typed,
        "planned": planned,
        "changes": changes[:_MAX_CHANGES],
        "left": max(0, len(changes) - _MAX_CHANGES),
    }
    return HtmlPage("import.html", "Import", context)


def _posted_documents(ask: PageRequest[Any]) -> str:
    return read_uploads() or ask.form.get("documents", "")


@page("/import", scope="bless", nav="revisions")
def begin_import(ask: PageRequest[Any]) -> HtmlPage:
    """Show the form of an import."""
    return _import_page(ask)


@page("/import", scope="bless", method="POST", nav="revisions", refused=_import_page)
def import_files(ask: PageRequest[Any]) -> HtmlPage | Redirect:
    """Show what pasted or uploaded documents would change, import them, or propose them."""
    text = _posted_documents(ask)
    if not text.strip():
        hint = "paste YAML or JSON, or choose files"
        raise BadInput("no documents are given", field="documents", hint=hint)
    what = read_action(ask, "check", "import", "propose")
    if what == "propose":
        return propose_text(ask, text)
    sources = [Source(FILE, text.replace("\r\n", "\n"), ask.service.settings.max_values)]
    by = check_author(ask) if what == "check" else ask.by()
    result = ask.rooms.matrix.import_documents(sources, by, dry_run=what == "check")
    if what == "check" or result.revision is None:
        return _import_page(ask, result)
    count = count_things(len(result.changes), "document")
    done = f"Imported {count} as revision {result.revision}."
    return Redirect(link("revisions", result.revision), add_warnings(done, result.warnings))
