"""One target: where it is, what is asked there, and what is known of it."""

from __future__ import annotations

from compatgate.documents.specs import TargetDoc
from compatgate.gate.freshness import Freshness, freshness
from compatgate.gate.heatmap import Pair, fits_of, on_target
from compatgate.gate.heatmap.axes import constraints_of
from compatgate.gate.nodes.view import NodeView
from compatgate.gate.policy_words import match_in_words, policy_in_words
from compatgate.gate.snapshot import Snapshot
from compatgate.gate.waiving import countdowns
from compatgate.store import clock
from compatgate.store.paging import Page
from compatgate.web.ui.links import link
from compatgate.web.ui.listing import Listing
from compatgate.web.ui.page import Ask, Shown, page
from compatgate.web.ui.pages.targets import document_of
from compatgate.web.ui.tables import Cell, Column, Empty, Table, make

DAYS = 30
ENTRIES = 60
"""Entries that a target's page evaluates; the list of entries has the rest."""
REVISIONS = 10
DRIFTED = 20
"""Nodes of a target that are shown where they differ from it."""


@page("/targets/<name>", nav="targets", query=Listing)
def show(ask: Ask[Listing]) -> Shown:
    """One target: pools, policy, entries, evidence, waivers, decisions, history."""
    name, gate = ask.args["name"], ask.gate
    row, snapshot, now = gate.matrix.get("Target", name), gate.snapshot(), clock.now()
    document = document_of(row)
    pairs, total = on_target(snapshot, name, fits_of(gate.facts), now, ENTRIES)
    target = snapshot.targets.get(name)
    fresh = freshness(target, snapshot.matrix.evidence, now.timestamp()) if target else []
    history = gate.matrix.list_changes("Target", name, limit=REVISIONS)
    waivers = countdowns(snapshot.waivers.values(), clock.today(), target=name)
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
        "waivers": [one for one in waivers if one.state != "expired"],
        "counted": gate.history.decisions_per_day(DAYS, target=name),
        "history": history,
        "reported": bool(gate.nodes.list(target=name, limit=1).items),
        "drift": _drift(gate.nodes.drift(target=name, limit=DRIFTED), name),
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
        Column("os", "OS"),
        Column("nodes", "Nodes", "number"),
    )
    return make("pools", columns, lines, Empty("No pools."), label="pools")


def _entries(pairs: list[Pair], sort: str | None) -> Table:
    columns = (
        Column("entry", "Entry"),
        Column("status", "Status", "badge"),
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
        "No entries for this target.",
        "An entry states which versions are known to work here.",
        "compatgate matrix import entries.yaml --reason 'what runs today'",
    )
    return make("entries", columns, lines, empty, sort=sort, label="entries")


def _evidence(found: list[Freshness]) -> Table:
    columns = (
        Column("suite", "Suite"),
        Column("sku", "GPU"),
        Column("driver", "Driver", "code"),
        Column("state", "State", "badge"),
        Column("run", "Latest run"),
        Column("finished", "Finished", "time"),
        Column("expires", "Valid until", "time"),
        Column("counting", "Valid runs", "number"),
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
    empty = Empty("Nothing to measure.", "Its pools name no known GPU.")
    return make("evidence", columns, lines, empty, label="suites")


def _drift(found: Page[NodeView], target: str) -> Table:
    """Nodes that are not what the target declares, one line for each difference."""
    columns = (
        Column("node", "Node"),
        Column("cluster", "Cluster"),
        Column("what", "Difference"),
        Column("have", "Reported", "code"),
        Column("declared", "Declared", "code"),
        Column("since", "Since", "time"),
        Column("seen", "Last seen", "time"),
    )
    lines = [
        (
            Cell(view.row.name, href=link("nodes", view.row.name, cluster=view.row.cluster)),
            view.row.cluster,
            Cell(one.what, title=one.message),
            one.have or "not known",
            ", ".join(one.declared),
            view.row.since,
            Cell(view.row.seen_at, tone="warn" if view.stale else ""),
        )
        for view in found.items
        for one in view.standing.differences
        if one.target == target
    ]
    empty = Empty("Every reported node matches the target.")
    return make("drift", columns, lines, empty, following=found.next, label="differences")


_TONES = {"passed": "passed", "failed": "failed", "stale": "warn", "missing": "unknown"}
