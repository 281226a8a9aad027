"""Show entries, waivers and revisions, and change them."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from compatgate.core.components import COMPONENTS, sort_components
from compatgate.core.entry_stacks import EntryStacks, entry_stack_text, represent
from compatgate.core.rules import RULES
from compatgate.documents.convert import to_waiver
from compatgate.documents.specs import KINDS, WaiverDoc, decode
from compatgate.kit import clock
from compatgate.kit.http.links import current_page_link, link
from compatgate.kit.http.route import LARGEST
from compatgate.kit.http.schemas import Filter, Search
from compatgate.kit.sections import shorten
from compatgate.kit.ui.filters import component_label
from compatgate.kit.ui.tables import (
    Act,
    Cell,
    TableQuery,
    is_export,
    list_rows,
    make_list_table,
    make_page_query,
    make_table,
)
from compatgate.service.gate.advice.pairs import Pair, list_entry_pairs, shared_fit_cache
from compatgate.service.matrix.documents.models import StoredDocument
from compatgate.service.matrix.documents.schemas import EntryFilters, RevisionBody, RevisionFilters
from compatgate.service.matrix.documents.service import STATUS_VERBS
from compatgate.service.matrix.documents.waivers import (
    Countdown,
    count_down,
    end_document,
    list_countdowns,
)
from compatgate.service.runs.evidence.promotion import EntryRemarks
from compatgate.web.page import (
    MAX_CHOICES,
    HtmlPage,
    PageRequest,
    Redirect,
    choices,
    expected_revision,
    listing,
    page,
)
from compatgate.web.pages.question_links import preview_represented

MAX_TARGETS = 40
"""Most targets on the page of an entry; the matrix shows all."""
MAX_REVISIONS = 20
_MAX_NAMED = 4
"""Targets of an entry that a list names."""
_STATUSES = ("candidate", "blessed", "deprecated", "revoked")
EntryQuery = make_page_query(EntryFilters)
_MAX_ENDED = 100
_PROMOTIONS = {
    "ready": ("ready for approval", "pass"),
    "failed": ("run failed", "fail"),
    "waiting": ("waiting for runs", "muted"),
}
_WAIVERS = {
    "active": ("holds", "pass"),
    "soon": ("ends soon", "warn"),
    "expired": ("ended", "muted"),
}
"""Words for the states of waivers, and their tones."""
DOCUMENTS_PER_PAGE = 50
"""Documents with their differences on one page."""
RevisionNumber = Annotated[int, Meta(ge=0, le=LARGEST["int"])]
RevisionQuery = make_page_query(RevisionFilters)


@page("/entries", nav="entries", query=EntryQuery)
def show_entries(ask: PageRequest[Any]) -> HtmlPage:
    """Show entries by name, with the state of their canary runs."""
    found = list_rows(ask.rooms.matrix.list_entries, ask.query)
    remarks = ask.rooms.runs.remarks(row.name for row in found.items)

    def cells(row: StoredDocument) -> dict[str, Any]:
        spec = row.document["spec"]
        parts, names = spec["components"], spec["targets"]
        every = targets = ", ".join(names)
        if not is_export() and len(names) > _MAX_NAMED + 1:  # else the row is too high
            targets = shorten(names, _MAX_NAMED)
        return {
            "name": Cell(row.name, link("entries", row.name), note=spec.get("reason", "")),
            "status": spec["status"],
            "constraints": " · ".join(f"{name} {parts[name]}" for name in sort_components(parts)),
            "targets": Cell(targets, title=every if targets != every else ""),
            "owner": row.document["metadata"].get("owner"),
            "runs": _runs_cell(remarks[row.name], spec.get("evidenceOverride")),
            "replacement": spec.get("replacement"),
        }

    table = make_list_table(listing("entries"), found, ask.query, cells)
    context = {
        "statuses": _STATUSES,
        "targets": choices(ask.gate.snapshot().documents),
        "components": list(COMPONENTS),
    }
    return HtmlPage("entries.html", "Entries", context, table)


def _runs_cell(remarks: EntryRemarks, override: str | None) -> Cell:
    if remarks.warnings:
        return Cell("contradicted", tone="fail", title=remarks.warnings[0].message)
    if override:
        return Cell("overridden", tone="warn", title=override)
    if remarks.promotion is None:
        return Cell(None)
    words, tone = _PROMOTIONS[remarks.promotion.state]
    return Cell(words, tone=tone)


@page("/entries/<name>", nav="entries", query=TableQuery)
def show_entry(ask: PageRequest[Any]) -> HtmlPage:
    """Show an entry."""
    row = ask.rooms.matrix.get("Entry", ask.args["name"])
    gate, snapshot, now = ask.gate, ask.gate.snapshot(), clock.now()
    entry = snapshot.entries.get(row.name)
    represented = represent(entry, gate.facts) if entry else EntryStacks()
    pairs: list[Pair] = []
    total = 0
    if entry is not None:
        cache = shared_fit_cache(gate.facts)
        pairs, total = list_entry_pairs(snapshot, entry, cache, now, MAX_TARGETS)
    spec = row.document["spec"]
    remarks = ask.rooms.runs.remarks([row.name])[row.name]
    context = {
        "row": row,
        "spec": spec,
        "constraints": [
            (component_label(n), spec["components"][n]) for n in sort_components(spec["components"])
        ],
        "replacement": spec.get("replacement"),
        "replaced_by_entry": spec.get("replacement") in snapshot.entries,
        "remarks": remarks,
        "asks_override": remarks.promotion is not None and bool(remarks.promotion.needs),
        "pools": ask.rooms.runs.entry_pools(row.name),
        "stack": entry_stack_text(entry, gate.facts) if entry else "",
        "targets_total": total,
        "targets_shown": MAX_TARGETS,
        "open": represented.open,
        "verbs": {name: verb for name, verb in STATUS_VERBS.items() if name != spec["status"]},
        "names": sorted(snapshot.entries)[:MAX_CHOICES],
        "history": ask.rooms.matrix.list_changes("Entry", row.name, limit=MAX_REVISIONS),
    }

    def cells(pair: Pair) -> dict[str, Any]:
        preview = preview_represented(ask, pair.target, represented)
        verdict = preview["verdict"]
        first = next(iter(verdict["findings"]), None) if verdict else None
        may_ask = verdict and ask.principal.may("gate")
        return {
            "gate": verdict["verdict"] if verdict else None,
            "why": pair.why or (f"{first['rule']}: {first['message']}" if first else ""),
            "ask": Cell("ask", preview["ask"]) if may_ask else None,
        }

    sort = getattr(ask.query, "sort", None)
    table = make_table(listing("entry-targets"), pairs, cells, sort=sort)
    return HtmlPage("entry.html", row.name, context, table)


@page("/entries/<name>/status", scope="bless", method="POST", nav="entries", refused=show_entry)
def change_entry(ask: PageRequest[Any]) -> Redirect:
    """Bless, deprecate or revoke an entry, unless someone else changed it."""
    name, form, status = ask.args["name"], ask.form, ask.form.get("status", "")
    made = ask.rooms.matrix.restate(
        name,
        status,
        ask.by(),
        replacement=form.get("replacement", "").strip(),
        evidence_override=form.get("override", "").strip(),
        expected=expected_revision(form),
    )
    return Redirect(link("entries", name), f"{name} is {status} since revision {made.revision}.")


@page("/revisions", nav="revisions", query=RevisionQuery)
def show_revisions(ask: PageRequest[Any]) -> HtmlPage:
    """Show revisions, newest first, and a form to compare two."""
    found = list_rows(ask.rooms.matrix.list_revisions, ask.query)
    direct = Cell("direct", tone="muted", title="direct change, without a proposal")

    def cells(row: RevisionBody) -> dict[str, Any]:
        reason = Cell(row.reason, link("revisions", row.number))
        return {"reason": reason, "proposal": row.proposal or direct}

    table = make_list_table(listing("revisions"), found, ask.query, cells)
    context = {"kinds": KINDS, "last": ask.gate.snapshot().revision}
    return HtmlPage("revisions.html", "Revisions", context, table)


class ChangesQuery(TableQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Position in a long list of changed documents."""

    skip: RevisionNumber = 0


@page("/revisions/<int:number>", nav="revisions", query=ChangesQuery)
def show_revision(ask: PageRequest[ChangesQuery]) -> HtmlPage:
    """Show a revision and its changes."""
    row = ask.rooms.matrix.show_revision(ask.args["number"])
    context = {"row": row, "last": ask.gate.snapshot().revision}
    context |= _slice_changes(row.changes, ask.query.skip)
    return HtmlPage("revision.html", f"Revision {row.number}", context)


class RevisionRange(ChangesQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Revisions to compare; 0 is the empty matrix before the first."""

    older: RevisionNumber | None = None
    newer: RevisionNumber | None = None


@page("/revisions/diff", nav="revisions", query=RevisionRange)
def show_difference(ask: PageRequest[RevisionRange]) -> HtmlPage:
    """Show the changes between two revisions, document by document."""
    last = ask.gate.snapshot().revision
    newer = last if ask.query.newer is None else ask.query.newer
    older = max(newer - 1, 0) if ask.query.older is None else ask.query.older
    part = _slice_changes(ask.rooms.matrix.diff(older, newer), ask.query.skip)
    changes = [edit.to_change() for edit in part["changes"]]
    context = {**part, "older": older, "newer": newer, "last": last, "changes": changes}
    return HtmlPage("revisions-diff.html", f"Revision {older} to {newer}", context)


def _slice_changes(changes: Any, skip: int) -> dict[str, Any]:
    end, before = skip + DOCUMENTS_PER_PAGE, max(0, skip - DOCUMENTS_PER_PAGE)
    actions = Counter(change.action for change in changes)
    return {
        "changes": changes[skip:end],
        "counts": {action: actions[action] for action in ("create", "change", "delete")},
        "skip": skip,
        "total": len(changes),
        "following": current_page_link(skip=end) if end < len(changes) else None,
        "preceding": current_page_link(skip=before or None) if skip else None,
    }


class WaiverQuery(TableQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of waivers."""

    search: Search | None = None
    target: Filter | None = None
    owner: Filter | None = None


@page("/waivers", nav="waivers", query=WaiverQuery)
def show_waivers(ask: PageRequest[WaiverQuery]) -> HtmlPage:
    """Show active waivers, the next to end first, and a list of ended waivers."""
    query, snapshot = ask.query, ask.gate.snapshot()
    found = list_countdowns(
        snapshot.waivers.values(),
        clock.today(),
        target=query.target or "",
        owner=query.owner or "",
        search=query.search or "",
    )
    over = [one for one in found if one.state == "expired"][::-1]
    held = [one for one in found if one.state != "expired"]
    wanted = [*held, *over] if query.format else held
    may_end = ask.principal.may("bless")

    def cells(one: Countdown) -> dict[str, Any]:
        waiver, can_end = one.waiver, may_end and one.state != "expired"
        end = Act("End…", f"{link('waivers', waiver.name)}#end")
        versions = " · ".join(f"{name} {text}" for name, text in waiver.components.items())
        words, tone = _WAIVERS[one.state]
        return {
            "state": Cell(words, tone=tone),
            "acts": Cell(None, acts=(end,) if can_end else ()),
            "for": waiver.image or versions or None,
        }

    ended = listing("waivers").without("left", "acts", name="ended", label="waivers")
    context = {
        "over": make_table(ended, over[:_MAX_ENDED], cells, filtered=True),
        "over_total": len(over),
        "targets": choices(snapshot.documents),
        "owners": choices(waiver.owner for waiver in snapshot.waivers.values()),
    }
    table = make_table(listing("waivers"), wanted, cells, sort=query.sort, filtered=True)
    return HtmlPage("waivers.html", "Waivers", context, table)


@page("/waivers/<name>", nav="waivers", query=TableQuery)
def show_waiver(ask: PageRequest[Any]) -> HtmlPage:
    """Show a waiver."""
    row = ask.rooms.matrix.get("Waiver", ask.args["name"])
    document = decode("Waiver", msgspec.json.encode(row.document))
    assert isinstance(document, WaiverDoc)  # noqa: S101 - what was asked for
    context = {
        "row": row,
        "one": count_down(to_waiver(document), clock.today()),
        "rule_names": {rule.id: rule.name for rule in RULES},
        "history": ask.rooms.matrix.list_changes("Waiver", row.name, limit=MAX_REVISIONS),
    }
    return HtmlPage("waiver.html", row.name, context)


@page("/waivers/<name>/end", scope="bless", method="POST", nav="waivers", refused=show_waiver)
def end_waiver(ask: PageRequest[Any]) -> Redirect:
    """End or delete a waiver; its history stays."""
    name, matrix = ask.args["name"], ask.rooms.matrix
    row = matrix.get("Waiver", name)
    expected, by = expected_revision(ask.form), ask.by()
    if ask.form.get("how") == "delete":
        revision = matrix.delete("Waiver", name, by, expected=expected)
        return Redirect(link("waivers"), f"Deleted {name} in revision {revision}.")
    matrix.change("Waiver", name, end_document(row.document, clock.today()), by, expected=expected)
    return Redirect(link("waivers", name), f"Ended {name}.")
