"""Show targets: pools, policy, entries, evidence and decisions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from compatgate.core.compare.packages import PackagesTarget
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
    NO_MATCHES,
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
from compatgate.service.matrix.documents.models import StoredDocument
from compatgate.service.matrix.proposals.schemas import DAYS
from compatgate.service.matrix.snapshots.snapshot import Snapshot
from compatgate.service.matrix.targets.api import TargetFilters
from compatgate.service.matrix.waivers.service import list_countdowns
from compatgate.service.nodes.reports.comparison import NodeView
from compatgate.service.runs.evidence.evidence import Freshness, assess_freshness
from compatgate.web.page import HtmlPage, PageRequest, choices, page

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
    Column("name", "Target"),
    Column("labels", "Labels"),
    Column("owner", "Owner"),
    Column("gpus", "GPUs"),
    Column("drivers", "Drivers", "code"),
    Column("nodes", "Nodes", "number"),
    Column("mode", "Mode"),
    Column("entries", "Entries", "number"),
    Column("stopped", "Denied, 7 d", "number"),
    Column("usable", "Usable", "badge"),
)
_EMPTY = EmptyNotice(
    "No targets yet.",
    "A target has pools of nodes, each pool with one GPU product and one driver.",
    "compatgate matrix import FILE --reason 'a first matrix'",
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
    query, snapshot = ask.query, ask.gate.snapshot()
    found = list_rows(ask.rooms.matrix.list_targets, query)
    stopped = ask.rooms.decisions.stopped_per_target(RECENT_DAYS)
    lines = [_target_row(row, snapshot, stopped.get(row.name, 0)) for row in found.items]
    table = make_list_table("targets", _COLUMNS, lines, found, query, _EMPTY, unfit=NO_MATCHES)
    pools = [pool for one in snapshot.documents.values() for pool in one.spec.pools]
    context = {
        "query": query,
        "gpus": choices({pool.gpu for pool in pools}),
        "drivers": choices({pool.driver for pool in pools}),
        "labels": choices(
            {f"{k}={v}" for one in snapshot.documents.values() for k, v in _labels_of(one).items()}
        ),
        "owners": choices(
            {one.metadata.owner for one in snapshot.documents.values() if one.metadata.owner}
        ),
    }
    return HtmlPage("targets.html", "Targets", context, table=table)


def _labels_of(document: TargetDoc) -> dict[str, str]:
    return document.metadata.labels


def _target_row(row: StoredDocument, snapshot: Snapshot, stopped: int) -> tuple[Any, ...]:
    document = document_of(row)
    pools = document.spec.pools
    why = snapshot.unusable.get(row.name, "")
    return (
        Cell(row.name, href=link("targets", row.name)),
        ", ".join(f"{key}={value}" for key, value in document.metadata.labels.items()),
        document.metadata.owner,
        ", ".join(dict.fromkeys(pool.gpu for pool in pools)),
        ", ".join(dict.fromkeys(pool.driver for pool in pools)),
        sum(pool.count for pool in pools),
        document.spec.policy.mode,
        len(snapshot.matrix.entries.of(row.name)),
        Cell(stopped, href=link("decisions", target=row.name, allowed="no")) if stopped else 0,
        Cell("no", tone="fail", title=why) if why else Cell("yes", tone="pass"),
    )


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
    context = {
        "row": row,
        "document": document,
        "pools": _pool_table(document, snapshot),
        "unusable": snapshot.unusable.get(name),
        "policy": describe_policy(document.spec.policy),
        "match": describe_match(document.spec.match),
        "entries_total": total,
        "entries_shown": MAX_ENTRIES,
        "freshness": _evidence_table(fresh),
        "waivers": [one for one in waivers if one.state != "expired"],
        "counted": ask.rooms.decisions.decisions_per_day(CHART_DAYS, target=name),
        "history": history,
        "reported": bool(ask.rooms.nodes.keys_of(name)),
        "good": ask.rooms.known_good.look_up(name),
        "drift": _drift_table(ask.rooms.nodes.drift(target=name, limit=MAX_DRIFTED_NODES), name),
    }
    return HtmlPage("target.html", name, context, table=_entry_table(pairs, ask.query.sort))


def _pool_table(document: TargetDoc, snapshot: Snapshot) -> Table:
    target = snapshot.targets.get(document.metadata.name)
    resolved = {pool.name: pool.gpu for pool in target.pools} if target else {}
    lines = []
    nodes = [_describe_node(pool) for pool in document.spec.pools]
    stated = any(nodes)
    for pool, node in zip(document.spec.pools, nodes, strict=True):
        gpu = resolved.get(pool.name)
        compute = f"{gpu.capability[0]}.{gpu.capability[1]}" if gpu else None
        sku = gpu.sku if gpu and gpu.sku != pool.gpu else ""
        lines.append(
            (
                pool.name,
                Cell(pool.gpu, note=f"resolved to {sku}" if sku else ""),
                compute,
                pool.driver,
                f"{pool.os}, {pool.cpu}",
                *([node] if stated else ()),
                pool.count,
            )
        )
    columns = (
        Column("name", "Pool"),
        Column("gpu", "GPU"),
        Column("compute", "Compute"),
        Column("driver", "Driver", "code"),
        Column("os", "OS"),
        *([Column("node", "Node stack")] if stated else ()),
        Column("nodes", "Nodes", "number"),
    )
    return make_table("pools", columns, lines, EmptyNotice("No pools."), label="pools")


def _describe_node(pool: PoolSpec) -> str:
    """Return the platform, the sharing and the parts of a pool's nodes that are stated."""
    stated = {"platform": pool.platform, "sharing": pool.sharing, **(pool.node or {})}
    return ", ".join(f"{name} {value}" for name, value in stated.items() if value)


def _entry_table(pairs: list[Pair], sort: str | None) -> Table:
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
            format_constraints(pair.entry),
            pair.why or pair.entry.reason,
        )
        for pair in pairs
    ]
    empty = EmptyNotice(
        "No entries for this target.",
        "An entry states which versions are known to work here.",
        "compatgate matrix import entries.yaml --reason 'what runs today'",
    )
    return make_table("entries", columns, lines, empty, sort=sort, label="entries")


def _evidence_table(found: list[Freshness]) -> Table:
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
            Cell(one.suite, note="" if one.required else "not required"),
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
    empty = EmptyNotice("Nothing to measure.", "The target's pools name no known GPU.")
    return make_table("evidence", columns, lines, empty, label="suites")


def _drift_table(found: Page[NodeView], target: str) -> Table:
    """Return the differences between nodes and the target's declaration, one per line."""
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
    empty = EmptyNotice("Every reported node matches the target.")
    return make_table("drift", columns, lines, empty, following=found.next, label="differences")


@page("/targets/<name>/packages", nav="targets", query=TableQuery)
def show_packages(ask: PageRequest[TableQuery]) -> HtmlPage:
    """Show the packages without a record on a target, and the effect of enforcing."""
    name = ask.args["name"]
    row = ask.rooms.matrix.get("Target", name)
    report = report_on_packages(ask.gate, target=name)
    found = report.targets[0] if report.targets else None
    context = {"row": row, "days": DAYS, "found": found, "complete": report.complete}
    table = _package_table(found, ask.query.sort)
    return HtmlPage("target_packages.html", f"{name}: packages", context, table=table)


def _package_table(found: PackagesTarget | None, sort: str | None) -> Table:
    columns = (
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
    lines = [
        (
            Cell(
                one.package,
                href=link("verdicts", one.verdicts[0]) if one.verdicts else None,
                title=one.message,
            ),
            one.version,
            ", ".join(one.rules),
            one.decisions,
            Cell(one.stopped, tone="fail" if one.stopped else ""),
            one.first,
            one.last,
            ", ".join(one.entries),
            "; ".join(one.todo),
        )
        for one in (found.packages if found else ())
    ]
    empty = EmptyNotice("No unknown packages.")
    return make_table("packages", columns, lines, empty, sort=sort, label="packages")
