"""Ask what another driver, GPU or component does to everything in use on a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from compatgate.core.compare.comparison import Comparison, find_pool_findings, list_entries_in_use
from compatgate.core.compare.differences import (
    CHANGE_ORDER,
    Subject,
    TargetDifferences,
    count_things,
    judge_change,
)
from compatgate.core.compare.worlds import State
from compatgate.core.evaluate import is_allowed
from compatgate.core.facts import Facts
from compatgate.core.matrix import Matrix
from compatgate.core.request import Pool, Target, change_pool
from compatgate.core.rule import OUTCOME_RANK
from compatgate.core.stack import Stack

_MAX_NAMED = 5


class WhatIf(TargetDifferences, frozen=True, kw_only=True):
    """What a change of a target does to the entries in use there."""

    @property
    def entries(self) -> tuple[Subject, ...]:
        """Return the entries in use that concern the changed pools, worst first."""
        return self.subjects

    @property
    def summary(self) -> str:
        """Return the answer in one line."""
        about, total = self.about, count_things(len(self.entries), "entry")
        if failing := [f for f in self.host if f.outcome == "fail"]:
            return f"{about}: {failing[0].rule} {failing[0].message}"
        if broken := self.of("breaks"):
            return f"{about} breaks {len(broken)} of {total}: {_name(broken)}"
        if not self.entries:
            return f"{about}: no entry is blessed on it, so nothing could be evaluated"
        if open_ := [entry for entry in self.entries if entry.is_open]:
            return f"{about} is not known to work for {len(open_)} of {total}: {_name(open_)}"
        if self.verdict == "unknown":
            return f"{about}: {self.host[0].rule} {self.host[0].message}"
        if worse := self.of("worsens"):
            return f"{about} breaks none of {total} and is worse for {len(worse)}: {_name(worse)}"
        return f"{about} breaks none of {total}"


def _name(entries: Sequence[Subject]) -> str:
    names = [entry.name for entry in entries[:_MAX_NAMED]]
    return ", ".join(names) + (", ..." if len(entries) > _MAX_NAMED else "")


def what_if(
    target: Target,
    pools: Sequence[Pool],
    changes: Mapping[str, Any],
    *,
    facts: Facts,
    matrix: Matrix,
    now: datetime,
    running: Sequence[Subject] = (),
) -> WhatIf:
    """Compare all entries in use on a target, and what runs there, before and after a change.

    The changes are ``driver gpu os cpu`` of some of its pools, and components of every stack.
    """
    changed = tuple(change_pool(pool, changes, facts.gpus) for pool in pools)
    before, after = (
        State(facts, matrix, {target.name: replace(target, pools=tuple(side))})
        for side in (pools, changed)
    )
    comparison = Comparison(before, after, now, changes)
    subjects = [*list_entries_in_use(matrix, target.name), *running]
    compared = sorted(
        filter(None, map(comparison, subjects)),
        key=lambda one: (-CHANGE_ORDER[one.change], -OUTCOME_RANK[one.after], one.name),
    )
    nothing = Stack({})
    alone = [
        [evaluate(nothing, replace(target, pools=(pool,))) for pool in side]
        for evaluate, side in zip(comparison.evaluators, (pools, changed), strict=True)
    ]
    host = find_pool_findings(zip(*alone, strict=True))
    outcome = judge_change(compared, host)
    return WhatIf(
        subjects=tuple(compared),
        target=target.name,
        set=dict(changes),
        verdict=outcome,
        allowed=is_allowed(outcome, target.policy),
        mode=target.policy.mode,
        host=host,
        before=tuple(one.pools[0] for one in alone[0]),
        after=tuple(one.pools[0] for one in alone[1]),
        matrix_revision=matrix.revision,
        facts=facts.digest,
    )
