"""What if: another driver, GPU or CUDA for a target, and what that gains and loses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from msgspec import Meta

from compatgate.core.facts import Facts
from compatgate.core.representative import known_versions
from compatgate.core.verdict import Finding
from compatgate.core.whatif import EntryChange, PoolChange, WhatIf
from compatgate.errors import CompatgateError
from compatgate.gate.whatif import what_if
from compatgate.store import clock
from compatgate.web.ui.links import link
from compatgate.web.ui.listing import Listing
from compatgate.web.ui.page import Ask, Shown, page
from compatgate.web.ui.tables import Cell, Column, Empty, Table, make

_Text = Annotated[str, Meta(max_length=200)]
_COLUMNS = (
    Column("entry", "Entry"),
    Column("status", "Status", "badge"),
    Column("pool", "Pool"),
    Column("before", "Now", "badge"),
    Column("after", "Then", "badge"),
    Column("change", "Change"),
    Column("why", "Why"),
    Column("fix", "Fix"),
)
_EMPTY = Empty(
    "No entries in use on this target.",
    "Blessed and deprecated entries are evaluated before and after the change.",
    "compatgate matrix import entries.yaml --reason 'what runs today'",
)


class WhatIfQuery(Listing, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which target, and what becomes another."""

    target: _Text = ""
    pool: _Text = ""
    driver: _Text = ""
    gpu: _Text = ""
    cuda: _Text = ""


@page("/what-if", scope="gate", nav="what-if", query=WhatIfQuery)
def show(ask: Ask[WhatIfQuery]) -> Shown:
    """Everything in use on a target, before and after."""
    query, snapshot = ask.query, ask.gate.snapshot()
    changes = {n: v for n in ("driver", "gpu", "cuda") if (v := getattr(query, n).strip())}
    found: WhatIf | None = None
    problem: CompatgateError | None = None
    if query.target and changes:
        try:
            found = what_if(snapshot, query.target, changes, clock.now(), pool=query.pool or None)
        except CompatgateError as error:
            problem = error
    target = snapshot.targets.get(query.target)
    context = {
        "query": query,
        "targets": sorted(snapshot.documents),
        "target": target,
        "gpus": sorted(ask.gate.facts.gpus.gpus),
        "drivers": list(_drivers(ask.gate.facts)),
        "cudas": _series(ask.gate.facts),
        "found": found,
        "problem": problem,
        "tally": _tally(found) if found else {},
        "pick": lambda **more: _link(query, **more),
    }
    table = _table(query, found) if found else None
    return Shown("what-if.html", "What if", context, table, problem.status if problem else 200)


def _link(query: WhatIfQuery, **changes: str) -> str:
    given = {n: getattr(query, n) for n in ("target", "pool", "driver", "gpu", "cuda")}
    return link("what-if", **{**given, **changes})


def _drivers(facts: Facts) -> Iterator[tuple[str, str]]:
    """The newest driver of each branch that is not past its end, newest first, with a note."""
    branches = facts.driver_branches.branches
    for number in sorted(branches, reverse=True):
        branch = branches[number]
        if branch.last is not None and not branch.ended:
            until = f", supported to {branch.eol}" if branch.eol else ""
            yield branch.last.text, f"branch {number}{until}"


def _series(facts: Facts) -> list[str]:
    pairs = {version.major_minor for version in known_versions(facts, "cuda")}
    return [f"{major}.{minor}" for major, minor in sorted(pairs, reverse=True)]


def _tally(found: WhatIf) -> dict[str, int]:
    return {change: len(found.of(change)) for change in ("breaks", "worsens", "same", "improves")}


def _table(query: WhatIfQuery, found: WhatIf) -> Table:
    rows = [row for entry in found.entries for row in _rows(query, entry)]
    name = f"what-if-{found.target}"
    return make(name, _COLUMNS, rows, _EMPTY, sort=query.sort, label="pairs of entry and pool")


def _rows(query: WhatIfQuery, entry: EntryChange) -> Iterator[tuple[Any, ...]]:
    name = Cell(entry.entry, link("entries", entry.entry))
    if entry.open:
        yield (name, entry.status, "", "unknown", "unknown", "open", "; ".join(entry.open), "")
    for pool in entry.pools:
        yield (
            name,
            entry.status,
            pool.pool,
            pool.before.verdict,
            pool.after.verdict,
            Cell(pool.change, tone=_TONES.get(pool.change, "")),
            _why(pool),
            "; ".join(fix.message for f in pool.lost for fix in f.fixes[:1]),
        )


_TONES = {"breaks": "fail", "worsens": "warn", "improves": "pass", "same": "muted"}


def _why(pool: PoolChange) -> str:
    if pool.lost:
        return "; ".join(_said(finding) for finding in pool.lost)
    return f"no longer: {'; '.join(_said(f) for f in pool.gained)}" if pool.gained else ""


def _said(finding: Finding) -> str:
    return f"{finding.rule} {finding.message}"
