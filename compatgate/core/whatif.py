"""Evaluate all entries in use on a target before and after a change of the target or the facts.

Each entry is evaluated on each pool by itself: a pool that fails already must not hide another
pool that begins to fail. Two verdicts are compared cause by cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.entry_stacks import StackSamples
from compatgate.core.evaluate import is_allowed
from compatgate.core.facts import Facts
from compatgate.core.matrix import Entry, EntryStatus, Matrix
from compatgate.core.reevaluation import (
    Reevaluator,
    change_by_cause,
    leaves_open,
    new_findings,
    resolved_findings,
    weight_of,
    worst_change,
)
from compatgate.core.request import Pool, Target, change_pool, change_stack
from compatgate.core.rule import OUTCOME_RANK, Finding, Outcome, Verdict
from compatgate.core.rules import BY_ID
from compatgate.core.rules.matrix import not_blessed
from compatgate.core.stack import Stack
from compatgate.core.whatif_result import (
    CHANGE_ORDER,
    Change,
    EntryChange,
    PoolChange,
    WhatIf,
)

STATUSES_IN_USE: tuple[EntryStatus, ...] = ("blessed", "deprecated")
"""Statuses of entries that running workloads may match."""


class PoolEvaluator:
    """Evaluates stacks on one pool of a target at a time.

    Args:
        target: its policy counts.
        facts: the catalog.
        matrix: entries, waivers and evidence.
        now: for ends of life, waivers and the age of evidence.
    """

    def __init__(self, target: Target, facts: Facts, matrix: Matrix, now: datetime) -> None:
        self._target = target
        self._evaluate = Reevaluator(facts, matrix, now)

    def __call__(self, stack: Stack, pool: Pool, *, with_fixes: bool = False) -> Verdict:
        """Return the verdict, as `Reevaluator` does."""
        return self._evaluate(stack, replace(self._target, pools=(pool,)), with_fixes=with_fixes)


def what_if(
    target: Target,
    pools: Sequence[Pool],
    changes: Mapping[str, Any],
    *,
    facts: Facts,
    matrix: Matrix,
    now: datetime,
) -> WhatIf:
    """Evaluate all entries in use on a target before and after a change.

    Args:
        target: the target before the change.
        pools: pools of the target that change.
        changes: ``driver gpu os cpu`` of the pools, and components of every stack.
        facts: the catalog.
        matrix: entries, waivers and evidence.
        now: for ends of life, waivers and the age of evidence.

    Raises:
        BadInput: a malformed value or an unknown component.
    """
    judge, samples = PoolEvaluator(target, facts, matrix, now), StackSamples(facts, matrix)
    judges = (judge, judge)
    moves = [(pool, change_pool(pool, changes, facts.gpus)) for pool in pools]
    entries = _compare_entries(matrix.entries.of(target.name), moves, changes, samples, judges)
    alone = [(judge(Stack({}), before), judge(Stack({}), after)) for before, after in moves]
    host = find_pool_findings(alone)
    outcome = judge_change(entries, host)
    return WhatIf(
        target.name,
        dict(changes),
        outcome,
        is_allowed(outcome, target.policy),
        target.policy.mode,
        host,
        tuple(entries),
        (),
        tuple(before.pools[0] for before, _ in alone),
        tuple(after.pools[0] for _, after in alone),
        matrix.revision,
        facts.digest,
    )


class Side(Struct, frozen=True):
    """A target and a matrix, resolved with one set of facts, and these facts."""

    target: Target
    facts: Facts
    matrix: Matrix


def compare_facts(before: Side, after: Side, now: datetime) -> tuple[EntryChange, ...]:
    """Evaluate all entries in use on a target with the old facts and with the new facts.

    Args:
        before: the target with the old facts, which choose the stacks of entries, so that a release
            that only the new facts know does not represent an entry.
        after: the same target with other facts.
        now: for ends of life, waivers and the age of evidence.

    Returns:
        Every entry in use, worst first.
    """
    judges = (
        PoolEvaluator(before.target, before.facts, before.matrix, now),
        PoolEvaluator(after.target, after.facts, after.matrix, now),
    )
    samples = StackSamples(before.facts, before.matrix)
    pools = {pool.name: pool for pool in after.target.pools}
    moves = [(pool, pools[pool.name]) for pool in before.target.pools if pool.name in pools]
    entries = before.matrix.entries.of(before.target.name)
    return tuple(_compare_entries(entries, moves, {}, samples, judges))


def _compare_entries(
    entries: Iterable[Entry],
    moves: Sequence[tuple[Pool, Pool]],
    changes: Mapping[str, Any],
    samples: StackSamples,
    judges: tuple[PoolEvaluator, PoolEvaluator],
) -> list[EntryChange]:
    """Compare the entries in use, worst first; those that state the same are compared once."""
    known: dict[tuple[Any, ...], EntryChange | None] = {}
    found = []
    for entry in entries:
        if entry.status not in STATUSES_IN_USE:
            continue
        key = (entry.status, entry.gpus, *entry.components.items())
        if key not in known:
            known[key] = _compare_entry(entry, moves, changes, samples, judges)
        if one := known[key]:
            found.append(replace(one, entry=entry.name))
    return sorted(found, key=_sort_key)


def _sort_key(entry: EntryChange) -> tuple[int, int, str]:
    return -CHANGE_ORDER[entry.change], -OUTCOME_RANK[entry.outcome], entry.entry


def _compare_entry(
    entry: Entry,
    moves: Iterable[tuple[Pool, Pool]],
    changes: Mapping[str, Any],
    samples: StackSamples,
    judges: tuple[PoolEvaluator, PoolEvaluator],
) -> EntryChange | None:
    """Compare an entry before and after a change; None where it is for none of the pools' GPUs."""
    concerned = [(old, new) for old, new in moves if entry.is_for(old) or entry.is_for(new)]
    if not concerned:
        return None
    stacks, left = samples.of(entry, [old for old, _ in concerned])
    if not all(stacks):
        return EntryChange(entry.name, entry.status, open=left)
    found = [
        _representative_sample(
            [compare_on_pool(entry, stack, changes, old, new, judges) for stack in of_pool]
        )
        for (old, new), of_pool in zip(concerned, stacks, strict=True)
    ]
    return EntryChange(entry.name, entry.status, tuple(found))


def _representative_sample(samples: Sequence[PoolChange]) -> PoolChange:
    """Return the first sample, or another that worked before and is worse afterwards."""
    worked = (s for s in samples[1:] if weight_of(s.before, "facts") <= OUTCOME_RANK["warn"])
    return max((samples[0], *worked), key=lambda sample: CHANGE_ORDER[sample.change])


def compare_on_pool(
    entry: Entry | None,
    stack: Stack,
    changes: Mapping[str, Any],
    before: Pool,
    after: Pool,
    judges: tuple[PoolEvaluator, PoolEvaluator],
) -> PoolChange:
    """Compare a stack on a pool before and after a change.

    Args:
        entry: that the stack represents; None: the stack runs, whatever blesses it.
        stack: before the change.
        changes: as of `what_if`.
        before: the pool before the change.
        after: the pool after the change.
        judges: evaluate before and after the change.
    """
    changed = change_stack(stack, changes)
    was, then = judges[0](stack, before), judges[1](changed, after)
    found = change_by_cause(was, then)
    worst = worst_change(found)
    worse = CHANGE_ORDER[worst] > CHANGE_ORDER["same"]
    if worse:
        then = judges[1](changed, after, with_fixes=True)
    return PoolChange(
        before.name,
        changed.to_json(),
        was,
        then,
        worst,
        next(cause for cause, change in found.items() if change == worst) if worse else None,
        leaves_open(was, then),
        tuple(_adapt_finding(f, entry, changes) for f in new_findings(was, then)),
        resolved_findings(was, then),
    )


def _adapt_finding(finding: Finding, entry: Entry | None, changes: Mapping[str, Any]) -> Finding:
    """Adapt a finding to a change: no fix undoes the change, and the entry is named."""
    if BY_ID[finding.rule].about_facts:
        return finding
    fixes = tuple(f for f in finding.fixes if not any(name in changes for name in f.set))
    if entry is None:
        return replace(finding, fixes=fixes)
    bounds = {name: entry.components[name] for name in changes if name in entry.components}
    if finding.rule != not_blessed.id or not bounds:
        return replace(finding, fixes=fixes)
    said = ", ".join(f"{name} {bound}" for name, bound in bounds.items())
    asked = ", ".join(f"{name} {changes[name]}" for name in bounds)
    message = (
        f"it is {entry.status} with {said}, and no entry blesses it with {asked}; "
        "run its suites on staging, then widen the entry or add one"
    )
    return replace(finding, message=message, have=asked, need=said, fixes=fixes)


def find_pool_findings(alone: Iterable[tuple[Verdict, Verdict]]) -> tuple[Finding, ...]:
    """Return new findings about the pools themselves; pools share equal findings."""
    found: dict[tuple[str, str], Finding] = {}
    for before, after in alone:
        for finding in new_findings(before, after):
            if BY_ID[finding.rule].pool_only:
                known = found.setdefault((finding.rule, finding.message), finding)
                pools = dict.fromkeys((*known.pools, *finding.pools))
                found[finding.rule, finding.message] = replace(known, pools=tuple(pools))
    return tuple(found.values())


class ChangedSubject(Protocol):
    """Something that a change of a target concerns, like an entry or a running stack."""

    @property
    def change(self) -> Change:
        """Return the worst change over the pools."""
        ...

    @property
    def is_open(self) -> bool:
        """Return whether it is not known that the subject continues to work."""
        ...


def judge_change(subjects: Sequence[ChangedSubject], host: Sequence[Finding]) -> Outcome:
    """Return the verdict on a change of a target.

    Args:
        subjects: that the change concerns.
        host: new findings about the pools themselves.
    """
    said = {finding.outcome for finding in host}
    changes = {one.change for one in subjects}
    if "breaks" in changes or "fail" in said:
        return "fail"
    if not subjects or "unknown" in said or any(one.is_open for one in subjects):
        return "unknown"
    return "warn" if "worsens" in changes or "warn" in said else "pass"
