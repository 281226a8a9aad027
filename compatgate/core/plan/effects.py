"""Make the plan of an upgrade: everything in use, before and after, grouped by cause.

Physics comes before paperwork: a stack that the vendors' facts break is in no other group, and an
entry is edited only where its own range is all that stands in the way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.components import is_framework
from compatgate.core.entry_evidence import index_runs, judge_candidate
from compatgate.core.entry_stacks import StackSamples
from compatgate.core.evaluate import is_allowed
from compatgate.core.facts import Facts
from compatgate.core.matrix import Entry, EntryIndex, Matrix
from compatgate.core.plan.frontier import FactsEvaluator, Placed, find_frontier
from compatgate.core.plan.ranges import branches_between, edit_entry
from compatgate.core.plan.releases import compare_frameworks
from compatgate.core.plan.result import (
    CauseGroup,
    OwedRun,
    Plan,
    RangeEdit,
    RunningStack,
    SubjectChange,
)
from compatgate.core.plan.waves import RACK_LABELS, PlannedNode, order_upgrade
from compatgate.core.reevaluation import cause_of, weight_of
from compatgate.core.request import Pool, Target, change_pool, change_stack
from compatgate.core.rule import OUTCOME_RANK, Finding, Verdict
from compatgate.core.stack import Stack
from compatgate.core.whatif import (
    STATUSES_IN_USE,
    PoolEvaluator,
    compare_on_pool,
    find_pool_findings,
    judge_change,
    what_if,
)
from compatgate.core.whatif_result import CAUSES, CHANGE_ORDER
from compatgate.errors import BadInput


class Question(Struct, frozen=True):
    """The subject of a plan.

    Attributes:
        pools: of the target that change.
        changes: resolved to versions, as of `compatgate.core.whatif.what_if`.
        running: stacks that the gate has allowed there.
        nodes: reported nodes of the target.
        rack_labels: labels whose value names a rack.
        remarks: on how the changes were chosen, and on what was left out.
    """

    target: Target
    pools: tuple[Pool, ...]
    changes: dict[str, Any]
    running: tuple[RunningStack, ...] = ()
    nodes: tuple[PlannedNode, ...] = ()
    rack_labels: tuple[str, ...] = RACK_LABELS
    remarks: tuple[str, ...] = ()


def make_plan(asked: Question, *, facts: Facts, matrix: Matrix, now: datetime) -> Plan:
    """Return the plan of an upgrade.

    Args:
        asked: the question.
        facts: the catalog.
        matrix: entries, waivers and evidence.
        now: for ends of life, waivers and the age of evidence.

    Raises:
        BadInput: a malformed value or an unknown component.
    """
    target, changes = asked.target, asked.changes
    found = what_if(target, asked.pools, changes, facts=facts, matrix=matrix, now=now)
    moves = [(pool, change_pool(pool, changes, facts.gpus)) for pool in asked.pools]
    judge = PoolEvaluator(target, facts, matrix, now)
    entries = [
        SubjectChange("entry", one.entry, one.status, one.pools, one.open) for one in found.entries
    ]
    stacks = [_compare_stack(one, moves, changes, judge) for one in asked.running]
    subjects = sorted([*entries, *filter(None, stacks)], key=_sort_key)
    host = find_pool_findings([(judge(Stack({}), a), judge(Stack({}), b)) for a, b in moves])
    outcome = judge_change(subjects, host)
    physics = FactsEvaluator(target.name, facts, matrix, now)
    edited = _edit_entries(entries, changes, matrix, target.name)
    after = replace(target, pools=_replace_pools(target, moves))
    owed = _list_owed(entries, edited, after, moves, matrix, now)
    return Plan(
        target.name,
        dict(changes),
        outcome,
        is_allowed(outcome, target.policy),
        target.policy.mode,
        host,
        _group(subjects),
        tuple(subjects),
        _describe_edits(edited, moves, changes, after, facts, matrix, now),
        owed,
        compare_frameworks(_frameworks(subjects), moves, changes, physics, facts),
        find_frontier(_place(asked, matrix, physics, facts), changes, physics, facts),
        order_upgrade(
            asked.pools,
            asked.nodes,
            changes.get("driver"),
            _hold(subjects, host),
            _list_needed(asked.pools, edited, owed),
            asked.rack_labels,
        ),
        asked.remarks,
        found.before,
        found.after,
        matrix.revision,
        facts.digest,
    )


def _sort_key(subject: SubjectChange) -> tuple[int, int, int, str, str]:
    return (
        -CHANGE_ORDER[subject.change],
        CAUSES.index(subject.cause) if subject.cause else len(CAUSES),
        -subject.decisions,
        subject.kind,
        subject.name,
    )


def _compare_stack(
    running: RunningStack,
    moves: Sequence[tuple[Pool, Pool]],
    changes: Mapping[str, Any],
    judge: PoolEvaluator,
) -> SubjectChange | None:
    """Compare a running stack; None where it runs on none of the pools."""
    concerned = [(a, b) for a, b in moves if not running.pools or a.name in running.pools]
    if not concerned:
        return None
    about = {
        "image": running.stack.image,
        "decisions": running.decisions,
        "last": running.last,
    }
    try:
        pools = tuple(
            compare_on_pool(None, running.stack, changes, a, b, (judge, judge))
            for a, b in concerned
        )
    except BadInput as error:  # the change does not fit this stack
        why = (f"the change cannot be applied to it: {error.detail}",)
        return SubjectChange("stack", running.verdict_id, "running", open=why, **about)  # type: ignore[arg-type]
    return SubjectChange("stack", running.verdict_id, "running", pools, **about)  # type: ignore[arg-type]


def _group(subjects: Iterable[SubjectChange]) -> tuple[CauseGroup, ...]:
    """Group new findings by rule and message; physics hides paperwork of the same pool."""
    groups: dict[tuple[str, str], CauseGroup] = {}
    for subject in subjects:
        for pool in subject.pools:
            fails = {cause_of(f) for f in pool.lost if f.outcome == "fail"}
            for finding in pool.lost:
                if "facts" in fails and cause_of(finding) != "facts":
                    continue
                key = (finding.rule, finding.message)
                groups[key] = _add(groups.get(key), finding, subject, pool.pool)
    return tuple(
        sorted(
            groups.values(),
            key=lambda g: (
                CAUSES.index(g.cause),
                -OUTCOME_RANK[g.outcome],
                -len(g.entries) - len(g.stacks),
                g.rule,
                g.message,
            ),
        )
    )


def _add(
    known: CauseGroup | None, finding: Finding, subject: SubjectChange, pool: str
) -> CauseGroup:
    fix = finding.fixes[0].message if finding.fixes else None
    group = known or CauseGroup(
        cause_of(finding),
        finding.rule,
        finding.name,
        finding.outcome,
        finding.message,
        fix,
        (),
        (),
        (),
    )
    entry, stack = ((subject.name,), ()) if subject.kind == "entry" else ((), (subject.name,))
    return replace(
        group,
        outcome=max(group.outcome, finding.outcome, key=OUTCOME_RANK.__getitem__),
        fix=group.fix or fix,
        pools=tuple(dict.fromkeys((*group.pools, pool))),
        entries=tuple(dict.fromkeys((*group.entries, *entry))),
        stacks=tuple(dict.fromkeys((*group.stacks, *stack))),
    )


def _edit_entries(
    subjects: Iterable[SubjectChange], changes: Mapping[str, Any], matrix: Matrix, target: str
) -> list[tuple[Entry, Entry]]:
    """Return the entries that only the matrix breaks, each before and after its edit."""
    broken = {s.name for s in subjects if s.change == "breaks" and s.cause == "matrix"}
    entries = sorted(matrix.entries.of(target), key=lambda entry: entry.name)
    return [
        (entry, edited)
        for entry in entries
        if entry.name in broken and (edited := edit_entry(entry, changes)) is not None
    ]


def _describe_edits(
    edited: Sequence[tuple[Entry, Entry]],
    moves: Sequence[tuple[Pool, Pool]],
    changes: Mapping[str, Any],
    after: Target,
    facts: Facts,
    matrix: Matrix,
    now: datetime,
) -> tuple[RangeEdit, ...]:
    """Describe edits, and verify them together: the edited matrix blesses the changed stacks."""
    if not edited:
        return ()
    new = {old.name: replace(entry, status=old.status) for old, entry in edited}
    entries = EntryIndex([new.get(entry.name, entry) for entry in matrix.entries.of(after.name)])
    tried = Matrix(matrix.revision, entries, matrix.waivers, matrix.evidence)
    judge, samples = PoolEvaluator(after, facts, tried, now), StackSamples(facts, matrix)
    found = []
    for old, entry in edited:
        pools = [pair for pair in moves if old.is_for(pair[0])]
        stacks, _ = samples.of(old, [before for before, _ in pools])
        verdicts = [
            judge(change_stack(of_pool[0], changes), pool)
            for (_, pool), of_pool in zip(pools, stacks, strict=True)
            if of_pool
        ]
        found.append(
            RangeEdit(
                old.name,
                entry.name,
                {
                    name: (old.components[name].text, constraint.text)
                    for name, constraint in entry.components.items()
                    if constraint != old.components[name]
                },
                branches_between(
                    old.components["driver"],
                    entry.components["driver"],
                    changes.get("driver"),
                    facts,
                )
                if "driver" in entry.components
                else (),
                bool(verdicts) and all(_is_blessed(verdict) for verdict in verdicts),
            )
        )
    return tuple(found)


def _is_blessed(verdict: Verdict) -> bool:
    return weight_of(verdict, "matrix") < OUTCOME_RANK["unknown"]


def _replace_pools(target: Target, moves: Iterable[tuple[Pool, Pool]]) -> tuple[Pool, ...]:
    new = {before.name: after for before, after in moves}
    return tuple(new.get(pool.name, pool) for pool in target.pools)


def _list_owed(
    subjects: Iterable[SubjectChange],
    edited: Sequence[tuple[Entry, Entry]],
    after: Target,
    moves: Sequence[tuple[Pool, Pool]],
    matrix: Matrix,
    now: datetime,
) -> tuple[OwedRun, ...]:
    """Return the runs that entries lack on the changed pools, unless physics breaks them there."""
    alive = {s.name for s in subjects if not (s.change == "breaks" and s.cause == "facts")}
    new = {old.name: entry for old, entry in edited}
    runs = index_runs(matrix.evidence)
    where = replace(after, pools=tuple(pool for _, pool in moves))
    found: dict[tuple[str, str, str], OwedRun] = {}
    for entry in matrix.entries.of(after.name):
        if entry.status not in STATUSES_IN_USE or entry.name not in alive:
            continue
        changed = replace(new.get(entry.name, entry), targets=(after.name,))
        for need in judge_candidate(changed, [where], runs, now.timestamp()).needs:
            key = (need.sku, need.driver, need.suite)
            known = found.get(key) or OwedRun(*key, after.policy.canary.require, ())
            names = tuple(dict.fromkeys((*known.entries, changed.name)))
            found[key] = replace(known, entries=names, failed=known.failed or need.failed)
    return tuple(found[key] for key in sorted(found))


def _frameworks(subjects: Iterable[SubjectChange]) -> list[str]:
    """Return the frameworks of everything in use, by name."""
    stated = {name for s in subjects for pool in s.pools for name in pool.stack}
    return sorted(name for name in stated if is_framework(name))


def _place(asked: Question, matrix: Matrix, physics: FactsEvaluator, facts: Facts) -> list[Placed]:
    """Return the stacks in use on each pool, where they work now by the facts."""
    samples, found = StackSamples(facts, matrix), []
    for entry in matrix.entries.of(asked.target.name):
        if entry.status in STATUSES_IN_USE:
            pools = [pool for pool in asked.pools if entry.is_for(pool)]
            stacks, _ = samples.of(entry, pools)
            for pool, of_pool in zip(pools, stacks, strict=True):
                found += [Placed(entry.name, stack, pool) for stack in of_pool]
    for one in asked.running:
        pools = [p for p in asked.pools if not one.pools or p.name in one.pools]
        found += [Placed(one.verdict_id, one.stack, pool) for pool in pools]
    return [one for one in found if physics(one.stack, one.pool)[0] < OUTCOME_RANK["unknown"]]


def _hold(subjects: Iterable[SubjectChange], host: Iterable[Finding]) -> dict[str, str]:
    """Return the pools on which physics stands against the change, each with the reason."""
    held: dict[str, str] = {}
    for finding in host:
        if finding.outcome == "fail":
            for name in finding.pools:
                held.setdefault(name, f"{finding.rule} {finding.message}")
    for subject in subjects:
        for pool in subject.pools:
            if pool.change == "breaks" and pool.cause == "facts":
                held.setdefault(pool.pool, f"the facts break {subject.name} on it")
    return held


def _list_needed(
    pools: Iterable[Pool], edited: Iterable[tuple[Entry, Entry]], owed: Iterable[OwedRun]
) -> dict[str, tuple[str, ...]]:
    """Return what is to be done before each pool may go, in words."""
    edits, runs = list(edited), list(owed)
    return {
        pool.name: (
            *(f"run suite {r.suite}" for r in runs if pool.gpu and r.sku == pool.gpu.sku),
            *(f"edit entry {old.name}" for old, _ in edits if old.is_for(pool)),
        )
        for pool in pools
    }
