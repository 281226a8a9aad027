"""Show targets: pools, policy, entries, evidence and decisions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from compatgate.core.compare.packages import OpenPackage
from compatgate.documents.quantities import describe_seconds, parse_duration
from compatgate.documents.specs import (
    CanarySpec,
    MatchSpec,
    PolicySpec,
    PoolSpec,
    TargetDoc,
    WaiverPolicySpec,
    decode,
)
from compatgate.kit import clock
from compatgate.kit.database.tables import Page
from compatgate.kit.http.links import link
from compatgate.kit.ui.tables import (
    Cell,
    Column,
    EmptyNotice,
    Table,
    TableQuery,
    list_rows,
    make_list_table,
    make_page_query,
    make_table,
)
from compatgate.service.changes.comparison.service import report_on_packages
from compatgate.service.gate.cells.pairs import (
    Pair,
    format_constraints,
    list_target_pairs,
    shared_fit_cache,
)
from compatgate.service.matrix.documents.document_api import TargetFilters
from compatgate.service.matrix.documents.models import StoredDocument
from compatgate.service.matrix.documents.waivers import list_countdowns
from compatgate.service.matrix.proposals.schemas import DAYS
from compatgate.service.matrix.snapshots.snapshot import Snapshot
from compatgate.service.runs.evidence.evidence import Freshness, assess_freshness
from compatgate.web.page import HtmlPage, PageRequest, choices, page
from compatgate.web.pages.nodes import DRIFT_COLUMNS, difference_cells, list_differences

_MODE_TEXTS = {
    "enforce": "Failing stacks are denied.",
    "warn": "Nothing is denied. Failing stacks are allowed with a warning.",
    "audit": "Nothing is denied. Failing stacks are allowed; the answer states the verdict.",
}
_UNKNOWN_TEXTS = {
    "fail": "Undecided stacks are stopped (no decision).",
    "warn": "Undecided stacks are allowed with a warning.",
    "allow": "Undecided stacks are allowed.",
}
_BIND_TEXTS = {
    "versions": "A run counts for every image with the versions that it measured.",
    "image": "A run counts only for the image that it tested, by its digest.",
}
RECENT_DAYS = 7
"""Days of decisions that the list counts."""
_COLUMNS = (
    Column("name", "Target", of="metadata.name", to="targets"),
    Column("labels", "Labels"),
    Column("owner", "Owner", of="metadata.owner"),
    Column("gpus", "GPUs"),
    Column("drivers", "Drivers", "code"),
    Column("nodes", "Nodes", "number"),
    Column("mode", "Mode", of="spec.policy.mode"),
    Column("entries", "Entries", "number"),
    Column("stopped", "Denied, 7 d", "number"),
    Column("usable", "Usable", "badge"),
)
_EMPTY = EmptyNotice(
    "No targets yet.",
    "A target has pools of nodes, each pool with one GPU product and one driver.",
    "compatgate matrix import FILE --reason 'a first matrix'",
)
_POOL_COLUMNS = (
    Column("name", "Pool"),
    Column("gpu", "GPU"),
    Column("compute", "Compute"),
    Column("driver", "Driver", "code"),
    Column("os", "OS"),
    Column("node", "Node stack"),
    Column("nodes", "Nodes", "number", of="count"),
)
_ENTRY_COLUMNS = (
    Column("entry", "Entry", of="entry.name", to="entries"),
    Column("status", "Status", "badge"),
    Column("constraints", "Constraints", "code"),
    Column("why", "Why"),
)
_NO_ENTRIES = EmptyNotice(
    "No entries for this target.",
    "An entry states which versions are known to work here.",
    "compatgate matrix import entries.yaml --reason 'what runs today'",
)
_EVIDENCE_COLUMNS = (
    Column("suite", "Suite"),
    Column("sku", "GPU"),
    Column("driver", "Driver", "code"),
    Column("state", "State", "badge"),
    Column("run", "Latest run"),
    Column("finished", "Finished", "time"),
    Column("expires", "Valid until", "time"),
    Column("counting", "Valid runs", "number"),
)
_NOT_MEASURED = EmptyNotice("Nothing to measure.", "The target's pools name no known GPU.")
_PACKAGE_COLUMNS = (
    Column("package", "Package"),
    Column("version", "Version", "code"),
    Column("rules", "Rule"),
    Column("decisions", "Decisions", "number"),
    Column("stopped", "Would stop", "number"),
    Column("first", "First seen", "time"),
    Column("last", "Last seen", "time"),
    Column("entries", "Entries"),
    Column("todo", "Ways to resolve"),
)
CHART_DAYS = 30
MAX_ENTRIES = 60
"""Most entries on the page of a target; the list of entries shows all."""
MAX_REVISIONS = 10
MAX_DRIFTED_NODES = 20
"""Most drifted nodes on the page of a target."""
_TONES = {"passed": "passed", "failed": "failed", "stale": "warn", "missing": "unknown"}


def describe_policy(policy: PolicySpec) -> list[str]:
    """Return one sentence for each setting of a policy."""
    words = [_MODE_TEXTS[policy.mode]]
    words.append(
        "A stack must match an entry of the matrix."
        if policy.require_entry
        else "A stack need not match an entry; the vendors' facts decide."
    )
    if policy.entries == "strict":
        words.append(
            "An entry blesses a stack only if the entry names every GPU package of the stack."
        )
    words += _describe_canary(policy.canary)
    if policy.packages == "audit":
        words.append("A package without a record is allowed with a warning.")
    if policy.missing_facts == "audit":
        words.append("A stated value that the facts cannot judge is allowed with a warning.")
    if policy.stated_stacks == "ignore":
        words.append("Stacks stated by pods do not count; the gate reads their images.")
    if policy.mode == "enforce":
        words.append(_UNKNOWN_TEXTS[policy.on_unknown])
    longest = (policy.waivers or WaiverPolicySpec()).max_duration
    longest = describe_seconds(parse_duration(longest).total_seconds())
    words.append(f"A new waiver lasts at most {longest}.")
    people = policy.approvals or 1
    if people > 1:
        number = "two" if people == 2 else str(people)
        of = f", approved by {', '.join(policy.approvers)}" if policy.approvers else ""
        words.append(f"A change that lets the gate allow more needs {number} people{of}.")
    if policy.changes == "proposals":
        words.append("A change is a proposal first; permissions can be withdrawn at once.")
    return words


def _describe_canary(canary: CanarySpec) -> Iterator[str]:
    suites = _join_suites(canary.suites)
    if canary.require:
        yield f"A stack must have passed {suites} on staging within the last {canary.max_age}."
    else:
        yield f"No canary run is required. Candidates are measured with {suites}."
    if canary.soak:
        yield f"Before an entry is blessed, {_join_suites(canary.soak)} must also have passed."
    yield (
        "A candidate whose suites have all passed is blessed automatically."
        if canary.promote == "automatic"
        else "A person approves a candidate whose suites have all passed."
    )
    if canary.on_failure == "revoke":
        yield "If a later run contradicts a blessed entry, the entry is revoked."
    if canary.bind in _BIND_TEXTS:
        yield _BIND_TEXTS[canary.bind]
    if canary.accept_development:
        yield "Runs outside a container count as evidence."
    if canary.assurance != "self-reported":
        yield f"A passed run counts if it is at least {canary.assurance}."
    for suite, sources in canary.imported.items():
        yield f"Imported results of {', '.join(sources)} count for the suite {suite}."


def describe_match(match: MatchSpec) -> list[str]:
    """Return sentences on how hooks match workloads to a target."""
    words = [
        "An object that names the target in the annotation compatgate.dev/target, unless its "
        "namespace or node selection excludes the target."
    ]
    if match.namespaces or match.node_labels:
        said = [f"in a namespace like {' or '.join(match.namespaces)}"] if match.namespaces else []
        if match.node_labels:
            labels = ", ".join(f"{key}={value}" for key, value in match.node_labels.items())
            said.append(f"that requests nodes with {labels}")
        words.append(f"Otherwise an object {' and '.join(said)}.")
    return words


def _join_suites(names: tuple[str, ...]) -> str:
    return f"suite{'s' if len(names) > 1 else ''} {', '.join(names)}"


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
    table = make_list_table("targets", _COLUMNS, listed, ask.query, _EMPTY, cells)
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
    history = ask.rooms.matrix.list_changes("Target", name, limit=MAX_REVISIONS)
    waivers = list_countdowns(snapshot.waivers.values(), clock.today(), target=name)
    drifted = ask.rooms.nodes.drift(target=name, limit=MAX_DRIFTED_NODES)
    context = {
        "row": row,
        "document": document,
        "pools": _pool_table(document, snapshot),
        "unusable": snapshot.unusable.get(name),
        "policy": describe_policy(document.spec.policy),
        "match": describe_match(document.spec.match),
        "entries_total": total,
        "entries_shown": MAX_ENTRIES,
        "freshness": make_table(
            "evidence", _EVIDENCE_COLUMNS, fresh, _NOT_MEASURED, _evidence_cells, label="suites"
        ),
        "waivers": [one for one in waivers if one.state != "expired"],
        "counted": ask.rooms.decisions.decisions_per_day(CHART_DAYS, target=name),
        "history": history,
        "reported": bool(ask.rooms.nodes.keys_of(name)),
        "good": ask.rooms.known_good.look_up(name),
        "drift": make_table(
            "drift",
            [one for one in DRIFT_COLUMNS if one.key not in ("state", "target", "gpus")],
            list_differences(drifted.items, target=name),
            EmptyNotice("Every reported node matches the target."),
            difference_cells,
            following=drifted.next,
            label="differences",
        ),
    }
    table = make_table(
        "entries", _ENTRY_COLUMNS, pairs, _NO_ENTRIES, _entry_cells, sort=ask.query.sort
    )
    return HtmlPage("target.html", name, context, table)


def _pool_table(document: TargetDoc, snapshot: Snapshot) -> Table:
    target = snapshot.targets.get(document.metadata.name)
    resolved = {pool.name: pool.gpu for pool in target.pools} if target else {}
    nodes = {pool.name: _describe_node(pool) for pool in document.spec.pools}

    def cells(pool: PoolSpec) -> dict[str, Any]:
        gpu = resolved.get(pool.name)
        sku = gpu.sku if gpu and gpu.sku != pool.gpu else ""
        return {
            "gpu": Cell(pool.gpu, note=f"resolved to {sku}" if sku else ""),
            "compute": f"{gpu.capability[0]}.{gpu.capability[1]}" if gpu else None,
            "os": f"{pool.os}, {pool.cpu}",
            "node": nodes[pool.name],
        }

    columns = [one for one in _POOL_COLUMNS if one.key != "node" or any(nodes.values())]
    return make_table("pools", columns, document.spec.pools, EmptyNotice("No pools."), cells)


def _describe_node(pool: PoolSpec) -> str:
    """Return the platform, the sharing and the parts of a pool's nodes that are stated."""
    stated = {"platform": pool.platform, "sharing": pool.sharing, **(pool.node or {})}
    return ", ".join(f"{name} {value}" for name, value in stated.items() if value)


def _entry_cells(pair: Pair) -> dict[str, Any]:
    constraints = format_constraints(pair.entry)
    return {"constraints": constraints, "why": pair.why or pair.entry.reason}


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
    row = ask.rooms.matrix.get("Target", name)
    report = report_on_packages(ask.gate, target=name)
    found = report.targets[0] if report.targets else None
    context = {"row": row, "days": DAYS, "found": found, "complete": report.complete}
    packages, empty = found.packages if found else (), EmptyNotice("No unknown packages.")
    table = make_table(
        "packages", _PACKAGE_COLUMNS, packages, empty, _package_cells, sort=ask.query.sort
    )
    return HtmlPage("target_packages.html", f"{name}: packages", context, table)


def _package_cells(one: OpenPackage) -> dict[str, Any]:
    place = link("verdicts", one.verdicts[0]) if one.verdicts else None
    return {
        "package": Cell(one.package, place, title=one.message),
        "stopped": Cell(one.stopped, tone="fail" if one.stopped else ""),
        "todo": "; ".join(one.todo),
    }
