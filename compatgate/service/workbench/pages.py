"""Change the matrix in the browser: forms for a target, an entry or a waiver, and imports.

Fields and YAML stand side by side. Before a change is made the page shows what it does. Each form
comes back with everything that was typed, whatever was wrong with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from flask import request
from msgspec import Meta, Struct

from compatgate.core.rules import RULES
from compatgate.documents.sources import Source
from compatgate.documents.specs import Change, Kind
from compatgate.documents.text import to_yaml
from compatgate.errors import BadInput, CompatgateError
from compatgate.kit import clock
from compatgate.kit.http.links import link
from compatgate.service.comparison.effects import ChangeEffects, preview_effects
from compatgate.service.matrix.imports import ImportResult
from compatgate.service.web.page import MAX_CHOICES, HtmlPage, PageRequest, Redirect, page
from compatgate.service.workbench.acts import (
    FILE,
    PLURALS,
    EditedDocument,
    add_warnings,
    check_author,
    complete_waiver,
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
from compatgate.service.workbench.form_fields import find_wrong_fields, list_holders, list_rows
from compatgate.service.workbench.node_texts import NodeDraft, draft_pools

_MODES = {
    "enforce": "deny what fails",
    "warn": "allow, with a warning",
    "audit": "allow, and only record",
}
_UNKNOWN = {"fail": "stop", "warn": "allow, with a warning", "allow": "allow"}
_STATUSES = ("candidate", "blessed", "deprecated", "revoked")
_ACTIONS = ("read", "check", "effects", "create", "propose")


class FormPlace(Struct, frozen=True):
    """The form of a document.

    Attributes:
        name: of the stored document; None: a new one.
        revision: of the stored document that the form shows.
    """

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
    """State that a form shows besides its fields.

    Attributes:
        error: says what was wrong.
        read: pools that were read from pasted text.
        planned: what storing the document would change.
        effects: what that would do; None: not asked for yet.
        rewritten: the YAML lost its comments.
    """

    error: CompatgateError | None = None
    read: NodeDraft | None = None
    planned: ImportResult | None = None
    effects: ChangeEffects | None = None
    rewritten: bool = False


_Word = Annotated[str, Meta(max_length=2000)]


class EntryStart(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Initial values of the form; other pages link to it with a target and versions."""

    targets: _Word = ""
    components: _Word = ""
    gpus: _Word = ""


class WaiverStart(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Initial values of the form; the page of a verdict links to it with rules and targets."""

    rules: _Word = ""
    targets: _Word = ""
    image: _Word = ""
    components: _Word = ""


class StatusStart(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The status that the form of a stored entry begins with."""

    status: Literal["", "candidate", "blessed", "deprecated", "revoked"] = ""


@page("/new-target", scope="bless", nav="targets")
def begin_target(ask: PageRequest[Any]) -> HtmlPage:
    """Show the form of a new target."""
    return _begin(ask, "Target", {})


@page("/new-entry", scope="bless", nav="entries", query=EntryStart)
def begin_entry(ask: PageRequest[EntryStart]) -> HtmlPage:
    """Show the form of a new entry."""
    query = ask.query
    given = {"targets": query.targets, "components": query.components, "gpus": query.gpus}
    return _begin(ask, "Entry", {"status": "candidate", **given} if any(given.values()) else {})


@page("/new-waiver", scope="bless", nav="waivers", query=WaiverStart)
def begin_waiver(ask: PageRequest[WaiverStart]) -> HtmlPage:
    """Show the form of a new waiver, and what it lets through if it states enough."""
    query = ask.query
    given = {name: getattr(query, name) for name in ("rules", "targets", "image", "components")}
    return _begin(ask, "Waiver", draft_waiver(ask, given))


def _begin(ask: PageRequest[Any], kind: Kind, given: Mapping[str, str]) -> HtmlPage:
    place = FormPlace(kind)
    if not given:
        document = start_document(kind)
        edited = EditedDocument(to_yaml([document]), document)
        return _form_page(ask, place, show_form(kind, edited), FormState())
    try:
        edited = edit_document(kind, given, ask.service.settings.max_values)
    except CompatgateError as error:
        return _form_page(ask, place, given, FormState(error))
    return _form_page(ask, place, show_form(kind, edited), _plan_begun(ask, place, edited))


def _plan_begun(ask: PageRequest[Any], place: FormPlace, edited: EditedDocument) -> FormState:
    """Return the plan of what a form begins with; nobody has typed yet, so nothing is wrong."""
    complete = _complete(place, edited, "", final=False)
    try:
        return FormState(planned=plan_document(ask, place.kind, complete.text, place.name))
    except CompatgateError:
        return FormState()


@page("/new-target", scope="bless", method="POST", nav="targets")
def create_target(ask: PageRequest[Any]) -> HtmlPage | Redirect:
    """Read pasted text, check a target, show what it does, create it, or propose it."""
    return _act(ask, FormPlace("Target"))


@page("/new-entry", scope="bless", method="POST", nav="entries")
def create_entry(ask: PageRequest[Any]) -> HtmlPage | Redirect:
    """Check an entry, show what it does, create it, or propose it."""
    return _act(ask, FormPlace("Entry"))


@page("/new-waiver", scope="bless", method="POST", nav="waivers")
def create_waiver(ask: PageRequest[Any]) -> HtmlPage | Redirect:
    """Check a waiver, show what it lets through, create it, or propose it."""
    return _act(ask, FormPlace("Waiver"))


@page("/targets/<name>/edit", scope="bless", nav="targets")
def edit_target(ask: PageRequest[Any]) -> HtmlPage:
    """Show the form of a stored target and its policy."""
    return _edit(ask, "Target", {})


@page("/entries/<name>/edit", scope="bless", nav="entries", query=StatusStart)
def edit_entry(ask: PageRequest[StatusStart]) -> HtmlPage:
    """Show the form of a stored entry, with another status if one is given."""
    return _edit(ask, "Entry", {"status": ask.query.status} if ask.query.status else {})


@page("/waivers/<name>/edit", scope="bless", nav="waivers")
def edit_waiver(ask: PageRequest[Any]) -> HtmlPage:
    """Show the form of a stored waiver."""
    return _edit(ask, "Waiver", {})


def _edit(ask: PageRequest[Any], kind: Kind, given: Mapping[str, str]) -> HtmlPage:
    row = ask.gate.matrix.get(kind, ask.args["name"])
    place = FormPlace(kind, row.name, row.revision)
    shown = show_form(kind, EditedDocument(to_yaml([row.document]), row.document))
    if not given:
        return _form_page(ask, place, shown, FormState())
    edited = edit_document(kind, {**shown, **given}, ask.service.settings.max_values)
    return _form_page(ask, place, show_form(kind, edited), _plan_begun(ask, place, edited))


@page("/targets/<name>/edit", scope="bless", method="POST", nav="targets")
def change_target(ask: PageRequest[Any]) -> HtmlPage | Redirect:
    """Check a changed target, show what the change does, store it, or propose it."""
    return _act(ask, FormPlace("Target", ask.args["name"]))


@page("/entries/<name>/edit", scope="bless", method="POST", nav="entries")
def change_entry_document(ask: PageRequest[Any]) -> HtmlPage | Redirect:
    """Check a changed entry, show what the change does, store it, or propose it."""
    return _act(ask, FormPlace("Entry", ask.args["name"]))


@page("/waivers/<name>/edit", scope="bless", method="POST", nav="waivers")
def change_waiver(ask: PageRequest[Any]) -> HtmlPage | Redirect:
    """Check a changed waiver, show what the change does, store it, or propose it."""
    return _act(ask, FormPlace("Waiver", ask.args["name"]))


def _act(ask: PageRequest[Any], place: FormPlace) -> HtmlPage | Redirect:
    form, what, kind = ask.form, _read_action(ask.form), place.kind
    if place.name is not None:
        ask.gate.matrix.get(kind, place.name)
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
            effects = (
                preview_effects(ask.gate, planned.edits, ask.principal.name)
                if what == "effects"
                else None
            )
            state = FormState(planned=planned, effects=effects, rewritten=edited.rewritten)
        else:
            hint = f"one of {', '.join(_ACTIONS)}"
            raise BadInput("is not an action", field="what", value=what, hint=hint)
    except CompatgateError as error:
        state = FormState(error, rewritten=edited.rewritten)
    shown = show_form(kind, edited)
    shown |= {
        name: form[name] for name in ("pasted", "reason", "revision", "force") if name in form
    }
    return _form_page(ask, place, shown, state)


def _read_action(form: Mapping[str, str]) -> str:
    """Return what a form asks for; what the page asks for by itself never changes anything."""
    if not _is_live():
        return form.get("what", "create")
    return "effects" if request.headers.get("HX-Target") == "effects" else "check"


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
    status = error.status if error and not live else 200
    title = f"New {kind.lower()}" if place.name is None else f"Change {place.name}"
    return HtmlPage("change.html", title, context, status=status)


_MAX_CHANGES = 50
"""Documents whose differences the page of an import shows."""


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
        typed["documents"] = text = read_uploads() or ask.form.get("documents", "")
        if not text.strip():
            hint = "paste YAML or JSON, or choose files"
            raise BadInput("no documents are given", field="documents", hint=hint)
        sources = [Source(FILE, text.replace("\r\n", "\n"), ask.service.settings.max_values)]
        if what == "propose":
            return propose_text(ask, text)
        if what not in ("check", "import"):
            hint = "one of check, import, propose"
            raise BadInput("is not an action", field="what", value=what, hint=hint)
        by = check_author(ask) if what == "check" else ask.by()
        result = ask.gate.matrix.import_documents(sources, by, dry_run=what == "check")
    except CompatgateError as error:
        return _import_page(ask, typed, error=error)
    if what == "check" or result.revision is None:
        return _import_page(ask, typed, planned=result)
    count = len(result.changes)
    done = f"Imported {count} document{'' if count == 1 else 's'} as revision {result.revision}."
    return Redirect(link("revisions", result.revision), done=add_warnings(done, result.warnings))


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
