"""What becomes of everything that is blessed on a target when the target or the facts change.

Each entry is evaluated before and after, on each pool by itself: a pool that fails already must not
hide another one that begins to. Pure; `compatgate.gate.whatif` asks it of a snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.evaluate import evaluate, is_allowed
from compatgate.core.facts import Facts
from compatgate.core.matrix import Entry, Matrix, Status
from compatgate.core.request import change_pool, change_stack
from compatgate.core.rules import BY_ID
from compatgate.core.rules.matrix import not_blessed
from compatgate.core.stack import Stack
from compatgate.core.target import Pool, Target
from compatgate.core.verdict import RANK, Finding, Outcome, Verdict
from compatgate.core.whatif import compare
from compatgate.core.whatif.model import ORDER, EntryChange, PoolChange, WhatIf
from compatgate.core.whatif.samples import Samples

IN_USE: tuple[Status, ...] = ("blessed", "deprecated")
"""Statuses of entries that workloads may be running by."""
_MOST_FIXED = 50
"""Stacks of which fixes are looked for; they cost more than all the rest."""
_encode = msgspec.json.Encoder().encode


class _Judge:
    """Gives verdicts on one pool of a target; what several entries have in common is judged once.

    Args:
        target: its policy counts.
        facts: the catalog.
        matrix: entries, waivers and evidence.
        now: for ends of life, waivers and the age of evidence.
    """

    def __init__(self, target: Target, facts: Facts, matrix: Matrix, now: datetime) -> None:
        self._target, self._facts, self._matrix, self._now = target, facts, matrix, now
        self._known: dict[bytes, Verdict] = {}
        self._fixed = 0

    def __call__(self, stack: Stack, pool: Pool, *, with_fixes: bool = False) -> Verdict:
        """The verdict; fixes are looked for as often as `_MOST_FIXED`."""
        where = replace(self._target, pools=(pool,))
        key = _encode((stack, id(pool), with_fixes))
        if key not in self._known:
            self._fixed += with_fixes
            self._known[key] = evaluate(
                stack,
                where,
                facts=self._facts,
                matrix=self._matrix,
                now=self._now,
                with_fixes=with_fixes and self._fixed <= _MOST_FIXED,
            )
        return self._known[key]


def what_if(
    target: Target,
    pools: Sequence[Pool],
    changes: Mapping[str, Any],
    *,
    facts: Facts,
    matrix: Matrix,
    now: datetime,
) -> WhatIf:
    """Evaluate everything in use on a target before and after a change.

    Args:
        target: as it is.
        pools: of the target, those that change.
        changes: ``driver gpu os cpu`` of the pools, and components of every stack.
        facts: the catalog.
        matrix: entries, waivers and evidence.
        now: for ends of life, waivers and the age of evidence.

    Raises:
        BadInput: a malformed value or an unknown component.
    """
    judge, samples = _Judge(target, facts, matrix, now), Samples(facts, matrix)
    judges = (judge, judge)
    moves = [(pool, change_pool(pool, changes, facts.gpus)) for pool in pools]
    entries = [
        found
        for entry in matrix.entries.of(target.name)
        if entry.status in IN_USE
        if (found := _of_entry(entry, moves, changes, samples, judges))
    ]
    entries.sort(key=_worst_first)
    alone = [(judge(Stack({}), before), judge(Stack({}), after)) for before, after in moves]
    host = _host(alone)
    outcome = _outcome(entries, host)
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
    """A target and a matrix as one set of facts resolves them, and those facts."""

    target: Target
    facts: Facts
    matrix: Matrix


def facts_change(before: Side, after: Side, now: datetime) -> tuple[EntryChange, ...]:
    """Evaluate everything in use on a target with the facts of before and with other ones.

    Args:
        before: what stands for an entry is chosen by these facts, so that a release that only the
            other ones know does not take its place.
        after: the same target with other facts.
        now: for ends of life, waivers and the age of evidence.

    Returns:
        Every entry in use, worst first.
    """
    judges = (
        _Judge(before.target, before.facts, before.matrix, now),
        _Judge(after.target, after.facts, after.matrix, now),
    )
    samples = Samples(before.facts, before.matrix)
    pools = {pool.name: pool for pool in after.target.pools}
    moves = [(pool, pools[pool.name]) for pool in before.target.pools if pool.name in pools]
    found = (
        _of_entry(entry, moves, {}, samples, judges)
        for entry in before.matrix.entries.of(before.target.name)
        if entry.status in IN_USE
    )
    return tuple(sorted(filter(None, found), key=_worst_first))


def _worst_first(entry: EntryChange) -> tuple[int, int, str]:
    return -ORDER[entry.change], -RANK[entry.outcome], entry.entry


def _of_entry(
    entry: Entry,
    moves: Iterable[tuple[Pool, Pool]],
    changes: Mapping[str, Any],
    samples: Samples,
    judges: tuple[_Judge, _Judge],
) -> EntryChange | None:
    """What becomes of an entry; None where it is for other GPUs than those of the pools."""
    concerned = [(old, new) for old, new in moves if entry.is_for(old) or entry.is_for(new)]
    if not concerned:
        return None
    stacks, left = samples.of(entry, [old for old, _ in concerned])
    if not all(stacks):
        return EntryChange(entry.name, entry.status, open=left)
    found = [
        _telling([_on_pool(entry, stack, changes, old, new, judges) for stack in of_pool])
        for (old, new), of_pool in zip(concerned, stacks, strict=True)
    ]
    return EntryChange(entry.name, entry.status, tuple(found))


def _telling(samples: Sequence[PoolChange]) -> PoolChange:
    """The first that stands for an entry; another one where that worked and fares worse."""
    worked = (s for s in samples[1:] if compare.weight(s.before, "facts") <= RANK["warn"])
    return max((samples[0], *worked), key=lambda sample: ORDER[sample.change])


def _on_pool(
    entry: Entry,
    stack: Stack,
    changes: Mapping[str, Any],
    before: Pool,
    after: Pool,
    judges: tuple[_Judge, _Judge],
) -> PoolChange:
    changed = change_stack(stack, changes)
    was, then = judges[0](stack, before), judges[1](changed, after)
    found = compare.changes(was, then)
    worst = compare.worst(found)
    worse = ORDER[worst] > ORDER["same"]
    if worse:
        then = judges[1](changed, after, with_fixes=True)
    return PoolChange(
        before.name,
        changed.to_json(),
        was,
        then,
        worst,
        next(cause for cause, change in found.items() if change == worst) if worse else None,
        compare.is_open(was, then),
        tuple(_about(f, entry, changes) for f in compare.new_findings(was, then)),
        compare.gained(was, then),
    )


def _about(finding: Finding, entry: Entry, changes: Mapping[str, Any]) -> Finding:
    """A finding as it reads here: no fix undoes the change, and the entry is known."""
    if BY_ID[finding.rule].about_facts:
        return finding
    fixes = tuple(f for f in finding.fixes if not any(name in changes for name in f.set))
    bounds = {name: entry.components[name] for name in changes if name in entry.components}
    if finding.rule != not_blessed.id or not bounds:
        return replace(finding, fixes=fixes)
    said = ", ".join(f"{name} {bound}" for name, bound in bounds.items())
    asked = ", ".join(f"{name} {changes[name]}" for name in bounds)
    message = (
        f"it is {entry.status} with {said}, and nothing blesses it with {asked}; "
        "run its suites on staging, then widen the entry or add one"
    )
    return replace(finding, message=message, have=asked, need=said, fixes=fixes)


def _host(alone: Iterable[tuple[Verdict, Verdict]]) -> tuple[Finding, ...]:
    """What is new of the pools themselves; what several share is said once."""
    found: dict[tuple[str, str], Finding] = {}
    for before, after in alone:
        for finding in compare.new_findings(before, after):
            if BY_ID[finding.rule].pool_only:
                known = found.setdefault((finding.rule, finding.message), finding)
                pools = dict.fromkeys((*known.pools, *finding.pools))
                found[finding.rule, finding.message] = replace(known, pools=tuple(pools))
    return tuple(found.values())


def _outcome(entries: Sequence[EntryChange], host: Sequence[Finding]) -> Outcome:
    said = {finding.outcome for finding in host}
    changes = {entry.change for entry in entries}
    if "breaks" in changes or "fail" in said:
        return "fail"
    if not entries or "unknown" in said or any(entry.is_open for entry in entries):
        return "unknown"
    return "warn" if "worsens" in changes or "warn" in said else "pass"
