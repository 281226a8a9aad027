"""Entries of the matrix: what they say, where they stand, and what becomes of them."""

from __future__ import annotations

from typing import Any

from compatgate.core.components import COMPONENTS, in_order
from compatgate.core.matrix import Status
from compatgate.core.representative import Represented, represent
from compatgate.errors import CompatgateError
from compatgate.gate.heatmap import Pair, fits_of, of_entry
from compatgate.gate.restating import VERBS
from compatgate.gate.runs.remarks import Remarks
from compatgate.store import clock
from compatgate.store.rows import Stored
from compatgate.web.paging import Filter, Search
from compatgate.web.ui.about import judged
from compatgate.web.ui.filters import label
from compatgate.web.ui.forms import MOST_CHOICES, choices, expected_revision
from compatgate.web.ui.links import link
from compatgate.web.ui.listing import Listing, LongListing, found_by, table_of
from compatgate.web.ui.page import Ask, Goto, Shown, page
from compatgate.web.ui.tables import NOTHING_FITS, Cell, Column, Empty, Table, make

TARGETS = 40
"""Targets on which an entry's page evaluates it; the matrix has the rest."""
REVISIONS = 20
_STATUSES = ("candidate", "blessed", "deprecated", "revoked")
_COLUMNS = (
    Column("name", "Entry"),
    Column("status", "Status", "badge"),
    Column("constraints", "Constraints", "code"),
    Column("targets", "Targets"),
    Column("runs", "Canary runs"),
    Column("replacement", "Replacement"),
    Column("changed", "Changed", "time"),
)
_EMPTY = Empty(
    "No entries yet.",
    "An entry states which versions are known to work on which targets.",
    "compatgate matrix import entries.yaml --reason 'what runs today'",
)


class EntryQuery(LongListing, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which entries."""

    search: Search | None = None
    status: Status | None = None
    target: Filter | None = None
    component: Filter | None = None


@page("/entries", nav="entries", query=EntryQuery)
def listing(ask: Ask[EntryQuery]) -> Shown:
    """Entries by name, with what canary runs have to say of them."""
    query, names = ask.query, ask.gate.snapshot().documents
    found = found_by(ask.gate.matrix.list_entries, query)
    said = ask.gate.runs.remarks(row.name for row in found.items)
    lines = [_line(row, said[row.name]) for row in found.items]
    table = table_of("entries", _COLUMNS, lines, found, query, _EMPTY, unfit=NOTHING_FITS)
    context = {
        "query": query,
        "statuses": _STATUSES,
        "targets": choices(names),
        "components": list(COMPONENTS),
    }
    return Shown("entries.html", "Entries", context, table=table)


def _line(row: Stored, remarks: Remarks) -> tuple[Any, ...]:
    spec = row.document["spec"]
    return (
        Cell(row.name, href=link("entries", row.name), note=spec.get("reason", "")),
        spec["status"],
        " · ".join(f"{name} {spec['components'][name]}" for name in in_order(spec["components"])),
        ", ".join(spec["targets"]),
        _remark(remarks),
        spec.get("replacement"),
        row.updated_at,
    )


def _remark(remarks: Remarks) -> Cell:
    if remarks.warnings:
        return Cell("contradicted", tone="fail", title=remarks.warnings[0].message)
    if remarks.promotion is None:
        return Cell(None)
    state = remarks.promotion.state
    words = {"ready": "ready for approval", "failed": "a run failed", "waiting": "waits for runs"}
    tones = {"ready": "pass", "failed": "fail", "waiting": "muted"}
    return Cell(words[state], tone=tones[state])


@page("/entries/<name>", nav="entries", query=Listing)
def show(ask: Ask[Listing]) -> Shown:
    """One entry."""
    return _shown(ask, ask.gate.matrix.get("Entry", ask.args["name"]))


@page("/entries/<name>/status", scope="bless", method="POST", nav="entries")
def change(ask: Ask[Any]) -> Shown | Goto:
    """Bless, deprecate or revoke it, if it is still what was looked at."""
    name, form = ask.args["name"], ask.form
    matrix, status = ask.gate.matrix, form.get("status", "")
    try:
        made = matrix.restate(
            name,
            status,
            ask.by(),
            replacement=form.get("replacement", "").strip(),
            expected=expected_revision(form),
        )
    except CompatgateError as error:
        return _shown(ask, matrix.get("Entry", name), error)
    return Goto(link("entries", name), done=f"{name} is {status} since revision {made.revision}.")


def _shown(ask: Ask[Any], row: Stored, error: CompatgateError | None = None) -> Shown:
    gate, snapshot, now = ask.gate, ask.gate.snapshot(), clock.now()
    entry = snapshot.entries.get(row.name)
    represented = represent(entry, gate.facts) if entry else Represented()
    pairs: list[Pair] = []
    total = 0
    if entry is not None:
        pairs, total = of_entry(snapshot, entry, fits_of(gate.facts), now, TARGETS)
    spec = row.document["spec"]
    context = {
        "row": row,
        "spec": spec,
        "constraints": [(label(n), spec["components"][n]) for n in in_order(spec["components"])],
        "replacement": spec.get("replacement"),
        "replaced_by_entry": spec.get("replacement") in snapshot.entries,
        "remarks": gate.runs.remarks([row.name])[row.name],
        "targets_total": total,
        "targets_shown": TARGETS,
        "open": represented.open,
        "verbs": {status: verb for status, verb in VERBS.items() if status != spec["status"]},
        "names": sorted(snapshot.entries)[:MOST_CHOICES],
        "history": gate.matrix.list_changes("Entry", row.name, limit=REVISIONS),
        "error": error,
        "typed": ask.form,
    }
    sort = getattr(ask.query, "sort", None)
    table = _standing(ask, pairs, represented, sort)
    return Shown(
        "entry.html", row.name, context, table=table, status=error.status if error else 200
    )


def _standing(
    ask: Ask[Any], pairs: list[Pair], represented: Represented, sort: str | None
) -> Table:
    columns = (
        Column("target", "Target"),
        Column("status", "Status", "badge"),
        Column("gate", "The gate says", "badge"),
        Column("why", "Why"),
        Column("ask", "Ask"),
    )
    lines = []
    for pair in pairs:
        said = judged(ask, pair.target, represented)
        verdict = said["verdict"]
        first = next(iter(verdict["findings"]), None) if verdict else None
        found = f"{first['rule']}: {first['message']}" if first else ""
        lines.append(
            (
                Cell(pair.target, href=link("targets", pair.target)),
                Cell(pair.status),
                Cell(verdict["verdict"]) if verdict else None,
                pair.why or found,
                Cell("ask", href=said["ask"]) if verdict and ask.principal.may("gate") else None,
            )
        )
    empty = Empty(
        "No pool matches.",
        "None of its targets has one of its GPUs.",
    )
    return make("targets", columns, lines, empty, sort=sort, label="targets")
