"""Show targets: pools, policy, entries, evidence and decisions."""

from __future__ import annotations

from typing import Any

import msgspec

from compatgate.core.compare.packages import OpenPackage
from compatgate.documents.specs import PoolSpec, TargetDoc, decode
from compatgate.kit import clock
from compatgate.kit.database.tables import Page
from compatgate.kit.http.links import link
from compatgate.kit.ui.tables import (
    Cell,
    EmptyNotice,
    Table,
    TableQuery,
    list_rows,
    make_list_table,
    make_page_query,
    make_table,
)
from compatgate.service.changes.comparison.service import report_on_packages
from compatgate.service.gate.advice.pairs import (
    Pair,
    format_constraints,
    list_target_pairs,
    shared_fit_cache,
)
from compatgate.service.matrix.documents.document_api import TargetFilters
from compatgate.service.matrix.documents.models import StoredDocument
from compatgate.service.matrix.documents.policy_words import describe_match, describe_policy
from compatgate.service.matrix.documents.waivers import list_countdowns
from compatgate.service.matrix.proposals.schemas import DAYS
from compatgate.service.matrix.snapshots.snapshot import Snapshot
from compatgate.service.runs.evidence.pools import Freshness, assess_freshness
from compatgate.web.page import HtmlPage, PageRequest, choices, listing, page
from compatgate.web.pages.nodes import difference_cells, list_differences

RECENT_DAYS = 7
"""Days of decisions that the list counts."""
CHART_DAYS = 30
MAX_ENTRIES = 60
"""Most entries on the page of a target; the list of entries shows all."""
MAX_REVISIONS = 10
MAX_DRIFTED_NODES = 20
"""Most drifted nodes on the page of a target."""
_TONES = {"passed": "passed", "failed": "failed", "stale": "warn", "missing": "unknown"}
TargetQuery = make_page_query(TargetFilters)


@page("/targets", nav="targets", query=TargetQuery)
def show_targets(ask: PageRequest[Any]) -> HtmlPage:
    """Show targets by name."""
    snapshot, found = ask.gate.snapshot(), list_rows(ask.rooms.matrix.list_targets, ask.query)
    stopped = ask.rooms.decisions.stopped_per_target(RECENT_DAYS)

    def cells(one: TargetDoc) -> dict[str, Any]:
        name, pools = one.metadata.name, one.spec.pools
        why, denied = snapshot.unusable.get(name, ""), stopped.get(name, 0)
        denials = link("decisions", target=name, allowed="no")
        return {
            "labels": _list_labels(one),
            "gpus": list(dict.fromkeys(pool.gpu for pool in pools)),
            "drivers": list(dict.fromkeys(pool.driver for pool in pools)),
            "nodes": sum(pool.count for pool in pools),
            "entries": len(snapshot.matrix.entries.of(name)),
            "stopped": Cell(denied, denials) if denied else 0,
            "usable": Cell("no", tone="fail", title=why) if why else Cell("yes", tone="pass"),
        }

    listed = Page(tuple(map(document_of, found.items)), found.next)
    table = make_list_table(listing("targets"), listed, ask.query, cells)
    documents = snapshot.documents.values()
    pools = [pool for one in documents for pool in one.spec.pools]
    context = {
        "gpus": choices(pool.gpu for pool in pools),
        "drivers": choices(pool.driver for pool in pools),
        "labels": choices(label for one in documents for label in _list_labels(one)),
        "owners": choices(one.metadata.owner for one in documents if one.metadata.owner),
    }
    return HtmlPage("targets.html", "Targets", context, table)


def _list_labels(document: TargetDoc) -> list[str]:
    return [f"{key}={value}" for key, value in document.metadata.labels.items()]


def document_of(row: StoredDocument) -> TargetDoc:
    """Return the document of a stored target."""
    found = decode("Target", msgspec.json.encode(row.document))
    assert isinstance(found, TargetDoc)  # noqa: S101 - what was asked for
    return found


@page("/targets/<name>", nav="targets", query=TableQuery)
def show_target(ask: PageRequest[TableQuery]) -> HtmlPage:
    """Show a target: pools, policy, entries, evidence, waivers, decisions, history."""
    name, gate = ask.args["name"], ask.gate
    row, snapshot, now = ask.rooms.matrix.get("Target", name), gate.snapshot(), clock.now()
    document = document_of(row)
    pairs, total = list_target_pairs(snapshot, name, shared_fit_cache(gate.facts), now, MAX_ENTRIES)
    target = snapshot.targets.get(name)
    fresh = assess_freshness(target, snapshot.matrix.evidence, now.timestamp()) if target else []
    waivers = list_countdowns(snapshot.waivers.values(), clock.today(), target=name)
    drifted = ask.rooms.nodes.drift(target=name, limit=MAX_DRIFTED_NODES)
    matching = EmptyNotice("Every reported node matches the target.")
    context = {
        "row": row,
        "document": document,
        "pools": _pool_table(document, snapshot),
        "unusable": snapshot.unusable.get(name),
        "policy": describe_policy(document.spec.policy),
        "match": describe_match(document.spec.match),
        "entries_total": total,
        "entries_shown": MAX_ENTRIES,
        "freshness": make_table(listing("evidence"), fresh, _evidence_cells),
        "waivers": [one for one in waivers if one.state != "expired"],
        "counted": ask.rooms.decisions.decisions_per_day(CHART_DAYS, target=name),
        "history": ask.rooms.matrix.list_changes("Target", name, limit=MAX_REVISIONS),
        "reported": bool(ask.rooms.nodes.keys_of(name)),
        "drift": make_table(
            listing("drift").without("state", "target", "gpus", empty=matching),
            list_differences(drifted.items, target=name),
            difference_cells,
            following=drifted.next,
        ),
    }

    def cells(pair: Pair) -> dict[str, Any]:
        why = pair.why or pair.entry.reason
        return {"constraints": format_constraints(pair.entry), "why": why}

    table = make_table(listing("target-entries"), pairs, cells, sort=ask.query.sort)
    return HtmlPage("target.html", name, context, table)


def _pool_table(document: TargetDoc, snapshot: Snapshot) -> Table:
    target = snapshot.targets.get(document.metadata.name)
    resolved = {pool.name: pool.gpu for pool in target.pools} if target else {}
    nodes = {}
    for pool in document.spec.pools:
        stated = {"platform": pool.platform, "sharing": pool.sharing, **(pool.node or {})}
        nodes[pool.name] = ", ".join(f"{name} {value}" for name, value in stated.items() if value)

    def cells(pool: PoolSpec) -> dict[str, Any]:
        gpu = resolved.get(pool.name)
        sku = gpu.sku if gpu and gpu.sku != pool.gpu else ""
        return {
            "gpu": Cell(pool.gpu, note=f"resolved to {sku}" if sku else ""),
            "compute": f"{gpu.capability[0]}.{gpu.capability[1]}" if gpu else None,
            "os": f"{pool.os}, {pool.cpu}",
            "node": nodes[pool.name],
        }

    shown = listing("target-pools").without(*(() if any(nodes.values()) else ("node",)))
    return make_table(shown, document.spec.pools, cells)


def _evidence_cells(one: Freshness) -> dict[str, Any]:
    run = one.run.id if one.run else None
    return {
        "suite": Cell(one.suite, note="" if one.required else "not required"),
        "sku": Cell(one.sku, title=", ".join(one.pools)),
        "state": Cell(one.state, tone=_TONES[one.state], title=one.why),
        "run": Cell(run, link("runs", run) if run else None, note=one.why),
        "finished": one.run.finished if one.run else "",
        "expires": one.expires or "",
    }


@page("/targets/<name>/packages", nav="targets", query=TableQuery)
def show_packages(ask: PageRequest[TableQuery]) -> HtmlPage:
    """Show the packages without a record on a target, and the effect of enforcing."""
    name = ask.args["name"]
    row, report = ask.rooms.matrix.get("Target", name), report_on_packages(ask.gate, target=name)
    found = report.targets[0] if report.targets else None
    context = {"row": row, "days": DAYS, "found": found, "complete": report.complete}
    packages = found.packages if found else ()

    def cells(one: OpenPackage) -> dict[str, Any]:
        place = link("verdicts", one.verdicts[0]) if one.verdicts else None
        return {
            "package": Cell(one.package, place, title=one.message),
            "stopped": Cell(one.stopped, tone="fail" if one.stopped else ""),
            "todo": "; ".join(one.todo),
        }

    table = make_table(listing("open-packages"), packages, cells, sort=ask.query.sort)
    return HtmlPage("target_packages.html", f"{name}: packages", context, table)
