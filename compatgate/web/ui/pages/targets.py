"""Targets: where stacks run, what is asked of them there, and what was answered."""

from __future__ import annotations

from typing import Any

import msgspec

from compatgate.documents.specs import TargetDoc, decode
from compatgate.gate.freshness import Freshness, freshness
from compatgate.gate.heatmap import Pair, fits_of, on_target
from compatgate.gate.heatmap.axes import constraints_of
from compatgate.gate.policy_words import match_in_words, policy_in_words
from compatgate.gate.snapshot import Snapshot
from compatgate.gate.waiving import countdowns
from compatgate.store import clock
from compatgate.store.rows import Stored
from compatgate.web.paging import Filter, Search
from compatgate.web.ui.links import link
from compatgate.web.ui.page import Ask, Listing, LongListing, Shown, page, rows_of
from compatgate.web.ui.tables import Cell, Column, Empty, Table, make

DAYS = 30
LATELY = 7
"""Days whose decisions the list counts."""
ENTRIES = 60
"""Entries that a target's page evaluates; the list of entries has the rest."""
REVISIONS = 10
_MOST_CHOICES = 200
_COLUMNS = (
    Column("name", "Target"),
    Column("labels", "Labels"),
    Column("gpus", "GPUs"),
    Column("drivers", "Drivers", "code"),
    Column("nodes", "Nodes", "number"),
    Column("mode", "Mode"),
    Column("entries", "Entries", "number"),
    Column("stopped", "Not allowed, 7 d", "number"),
    Column("usable", "Usable", "badge"),
)
_NONE = Empty(
    "No target fits.",
    "A target is a place to run: pools of nodes, each with one GPU product and one driver.",
    "compatgate matrix import matrix/examples --reason 'a first matrix'",
)


class TargetQuery(LongListing, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which targets."""

    search: Search | None = None
    label: Filter | None = None
    gpu: Filter | None = None
    driver: Filter | None = None


@page("/targets", nav="targets", query=TargetQuery)
def listing(ask: Ask[TargetQuery]) -> Shown:
    """Targets by name."""
    query, snapshot = ask.query, ask.gate.snapshot()
    found = rows_of(
        ask.gate.matrix.list_targets,
        query.cursor,
        search=query.search,
        label=query.label,
        gpu=query.gpu,
        driver=query.driver,
    )
    stopped = ask.gate.history.stopped_per_target(LATELY)
    table = make(
        "targets",
        _COLUMNS,
        [_line(row, snapshot, stopped.get(row.name, 0)) for row in found.items],
        _NONE,
        sort=query.sort,
        following=found.next,
        label="targets",
    )
    pools = [pool for one in snapshot.documents.values() for pool in one.spec.pools]
    context = {
        "query": query,
        "gpus": _choices({pool.gpu for pool in pools}),
        "drivers": _choices({pool.driver for pool in pools}),
        "labels": _choices(
            {f"{k}={v}" for one in snapshot.documents.values() for k, v in _labels(one).items()}
        ),
    }
    return Shown("targets.html", "Targets", context, table=table)


def _labels(document: TargetDoc) -> dict[str, str]:
    return document.metadata.labels


def _choices(values: set[str]) -> list[str] | None:
    """To choose from; too many are typed."""
    return sorted(values) if len(values) <= _MOST_CHOICES else None


def _line(row: Stored, snapshot: Snapshot, stopped: int) -> tuple[Any, ...]:
    document = _document(row)
    pools = document.spec.pools
    why = snapshot.unusable.get(row.name, "")
    return (
        Cell(row.name, href=link("targets", row.name)),
        ", ".join(f"{key}={value}" for key, value in document.metadata.labels.items()),
        ", ".join(dict.fromkeys(pool.gpu for pool in pools)),
        ", ".join(dict.fromkeys(pool.driver for pool in pools)),
        sum(pool.count for pool in pools),
        document.spec.policy.mode,
        len(snapshot.matrix.entries.of(row.name)),
        Cell(stopped, href=link("decisions", target=row.name, allowed="no")) if stopped else 0,
        Cell("no", tone="fail", title=why) if why else Cell("yes", tone="pass"),
    )


def _document(row: Stored) -> TargetDoc:
    found = decode("Target", msgspec.json.encode(row.document))
    assert isinstance(found, TargetDoc)  # noqa: S101 - what was asked for
    return found


@page("/targets/<name>", nav="targets", query=Listing)
def show(ask: Ask[Listing]) -> Shown:
    """One target: pools, policy, entries, evidence, waivers, decisions, history."""
    name, gate = ask.args["name"], ask.gate
    row, snapshot, now = gate.matrix.get("Target", name), gate.snapshot(), clock.now()
    document = _document(row)
    pairs, total = on_target(snapshot, name, fits_of(gate.facts), now, ENTRIES)
    target = snapshot.targets.get(name)
    fresh = freshness(target, snapshot.matrix.evidence, now.timestamp()) if target else []
    history = gate.matrix.list_changes("Target", name, limit=REVISIONS)
    context = {
        "row": row,
        "document": document,
        "pools": _pools(document, snapshot),
        "unusable": snapshot.unusable.get(name),
        "policy": policy_in_words(document.spec.policy),
        "match": match_in_words(document.spec.match),
        "entries_total": total,
        "entries_shown": ENTRIES,
        "freshness": _evidence(fresh),
        "waivers": countdowns(snapshot.waivers.values(), clock.today(), target=name),
        "counted": gate.history.decisions_per_day(DAYS, target=name),
        "history": history,
    }
    return Shown("target.html", name, context, table=_entries(pairs, ask.query.sort))


def _pools(document: TargetDoc, snapshot: Snapshot) -> Table:
    target = snapshot.targets.get(document.metadata.name)
    resolved = {pool.name: pool.gpu for pool in target.pools} if target else {}
    lines = []
    for pool in document.spec.pools:
        gpu = resolved.get(pool.name)
        compute = f"{gpu.capability[0]}.{gpu.capability[1]}" if gpu else None
        sku = gpu.sku if gpu and gpu.sku != pool.gpu else ""
        lines.append(
            (
                pool.name,
                Cell(pool.gpu, note=f"that is {sku}" if sku else ""),
                compute,
                pool.driver,
                f"{pool.os}, {pool.cpu}",
                pool.count,
            )
        )
    columns = (
        Column("name", "Pool"),
        Column("gpu", "GPU"),
        Column("compute", "Compute"),
        Column("driver", "Driver", "code"),
        Column("os", "System"),
        Column("nodes", "Nodes", "number"),
    )
    return make("pools", columns, lines, Empty("It has no pools."), label="pools")


def _entries(pairs: list[Pair], sort: str | None) -> Table:
    columns = (
        Column("entry", "Entry"),
        Column("status", "Here", "badge"),
        Column("constraints", "Constraints", "code"),
        Column("why", "Why"),
    )
    lines = [
        (
            Cell(pair.entry.name, href=link("entries", pair.entry.name)),
            Cell(pair.status),
            constraints_of(pair.entry),
            pair.why or pair.entry.reason,
        )
        for pair in pairs
    ]
    empty = Empty(
        "No entry speaks of this target.",
        "An entry says which versions are known to work here.",
        "compatgate matrix import entries.yaml --reason 'what runs today'",
    )
    return make("entries", columns, lines, empty, sort=sort, label="entries")


def _evidence(found: list[Freshness]) -> Table:
    columns = (
        Column("suite", "Suite"),
        Column("sku", "GPU"),
        Column("driver", "Driver", "code"),
        Column("state", "State", "badge"),
        Column("run", "Newest run"),
        Column("finished", "Finished", "time"),
        Column("expires", "Counts until", "time"),
        Column("counting", "Runs that count", "number"),
    )
    lines = [
        (
            Cell(one.suite, note="" if one.required else "not asked for"),
            Cell(one.sku, title=", ".join(one.pools)),
            one.driver,
            Cell(one.state, tone=_TONES[one.state], title=one.why),
            Cell(one.run.id, href=link("runs", one.run.id), note=one.why)
            if one.run
            else Cell(None, note=one.why),
            one.run.finished if one.run else None,
            one.expires,
            one.counting,
        )
        for one in found
    ]
    empty = Empty("Nothing can be measured here.", "Its pools name no GPU that is known.")
    return make("evidence", columns, lines, empty, label="suites")


_TONES = {"passed": "passed", "failed": "failed", "stale": "warn", "missing": "unknown"}
