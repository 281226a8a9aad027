"""Find whole changes that end in *allowed*, the smallest first.

A fix mends one finding. A remedy is one fix or several that together leave nothing that denies:
each was evaluated as a whole, as ``check`` would evaluate it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.changes import describe_change
from compatgate.core.evaluate import evaluate
from compatgate.core.facts import Facts
from compatgate.core.matrix import Matrix
from compatgate.core.request import POOL_CHANGES, Target, change_pool
from compatgate.core.rule import REFUSING, Verdict, fix_value
from compatgate.core.stack import Stack, update_stack
from compatgate.errors import BadInput

MAX_REMEDIES = 4
_MAX_TRIALS = 24
_MAX_PARTS = 8  # parts that one remedy changes; what changes more is another stack

Judge = Callable[..., Verdict]
"""Evaluates a change of the question; ``with_fixes`` computes the fixes of what stays open."""


class Remedy(Struct, frozen=True):
    """A change that ends in *allowed*.

    Attributes:
        set: as ``set`` of a question states it; None removes.
        warnings: number of findings that still warn.
    """

    set: dict[str, str | None]
    message: str
    warnings: int


def make_judge(
    stack: Stack, target: Target, *, facts: Facts, matrix: Matrix, now: datetime
) -> Judge:
    """Return the evaluation of a stack on a target, by a change of both."""

    def judge(changes: Mapping[str, Any], *, with_fixes: bool = False) -> Verdict:
        pools = tuple(change_pool(pool, changes, facts.gpus) for pool in target.pools)
        ours = {name: value for name, value in changes.items() if name not in POOL_CHANGES}
        return evaluate(
            update_stack(stack, ours) if ours else stack,
            replace(target, pools=pools),
            facts=facts,
            matrix=matrix,
            now=now,
            with_fixes=with_fixes,
        )

    return judge


def find_remedies(judge: Judge, most: int = MAX_REMEDIES) -> list[Remedy]:
    """Return the smallest changes that end in *allowed*; no change includes another one."""
    found: list[Remedy] = []
    tried: set[frozenset[tuple[str, str | None]]] = set()
    waiting: list[tuple[int, bool, int, dict[str, str | None]]] = [(0, False, 0, {})]
    for _ in range(_MAX_TRIALS):
        while waiting and any(one.set.items() <= waiting[0][-1].items() for one in found):
            heapq.heappop(waiting)  # less was enough
        if not waiting or len(found) == most:
            break
        *_, changes = heapq.heappop(waiting)
        try:
            verdict = judge(changes)
            if verdict.allowed and verdict.verdict not in REFUSING:
                warnings = sum(one.outcome == "warn" for one in verdict.findings)
                if changes:
                    arch = {"arch": codes.split("+")} if (codes := changes.get("arch")) else {}
                    message = describe_change({**changes, **arch})
                    found.append(Remedy(changes, message, warnings))
                continue
            verdict = judge(changes, with_fixes=True)
        except BadInput:  # fixes that exclude each other
            continue
        refusing = (one for one in verdict.findings if one.outcome in REFUSING)
        for fix in (fix for finding in refusing for fix in finding.fixes):
            more = {n: None if v is None else fix_value(v) for n, v in fix.set.items()}
            joined = {**changes, **more}
            key = frozenset(joined.items())
            if key not in tried and len(joined) <= _MAX_PARTS:
                tried.add(key)
                of_pools = not joined.keys().isdisjoint(POOL_CHANGES)
                heapq.heappush(waiting, (len(joined), of_pools, len(tried), joined))
    return found
