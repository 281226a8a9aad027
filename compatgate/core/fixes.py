"""Find fixes: candidates that mend the finding when evaluated, without breaking another fact."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any

from msgspec.structs import replace

from compatgate.core.gpus import resolve_gpu
from compatgate.core.package_cuda import assume_cuda
from compatgate.core.parts import Candidate, Parts, parts_of
from compatgate.core.performance import lazy_property
from compatgate.core.request import POOL_CHANGES, change_pool
from compatgate.core.rule import OUTCOME_RANK, Fix, Problem, Rule, RuleAnswer
from compatgate.core.rule_context import RuleContext
from compatgate.core.rules import RULES
from compatgate.core.stack import complete_stack, update_stack
from compatgate.core.versions import parse_version
from compatgate.errors import BadInput

MAX_FIXES = {"fail": 3, "unknown": 3, "warn": 1}
MAX_CANDIDATES = 16  # candidates for each finding; a candidate further away is not a small change
_SAME_VERSION = {"fabric-manager": "Fabric Manager", "imex": "IMEX"}
"""Parts of a node that must have the driver's version; a fix changes them with it."""


@lru_cache(maxsize=256)
def find_affected_rules(changed: Parts, stated: Parts, *, about_facts: bool) -> tuple[Rule, ...]:
    """Return the rules that may object once these parts change."""
    return tuple(
        rule
        for rule in RULES
        if rule.about_facts is about_facts
        and not rule.reads.isdisjoint(changed)
        and rule.applies_to(stated)
    )


class _Trial:
    def __init__(
        self, before: Mapping[str, RuleAnswer], after: RuleContext, changed: Parts
    ) -> None:
        self._before = before
        self._after = after
        self._changed = changed
        self._answers: dict[str, RuleAnswer] = {}

    def mends(self, problem: Problem, rule: Rule) -> bool:
        """Return whether the rule no longer objects to the problem, nor to anything new."""
        if rule.reads.isdisjoint(self._changed):
            return False
        weight = _rank_components(self._answer(rule)).get(problem.component, 0)
        persists = weight >= (1 if problem.outcome == "warn" else 2)
        return not persists and not self._is_worse((rule,))

    @lazy_property
    def breaks_a_fact(self) -> bool:
        """Return whether a rule about facts objects now and did not before."""
        return self._is_worse(self._find_affected(about_facts=True))

    @lazy_property
    def needs_blessing(self) -> bool:
        """Return whether the changed stack lacks a matrix entry or evidence."""
        return self._is_worse(self._find_affected(about_facts=False))

    def _find_affected(self, *, about_facts: bool) -> tuple[Rule, ...]:
        stated = self._after.optional_parts
        return find_affected_rules(self._changed, stated, about_facts=about_facts)

    def _is_worse(self, rules: Iterable[Rule]) -> bool:
        for rule in rules:
            answer = self._answer(rule)
            if isinstance(answer, str):
                continue
            # Warnings do not count.
            bad = {name: n for name, n in _rank_components(answer).items() if n > 1}
            known = _rank_components(self._before[rule.id]) if bad else {}
            if any(weight > known.get(name, 0) for name, weight in bad.items()):
                return True
        return False

    def _answer(self, rule: Rule) -> RuleAnswer:
        answer = self._answers.get(rule.id)
        if answer is None:
            answer = self._answers[rule.id] = rule.answer(self._after)
        return answer


class FixFinder:
    """Finds fixes for the findings of one context.

    A fix holds when the finding's rule no longer objects and no rule about facts objects that did
    not object before. Where the change then needs a matrix entry or evidence, its message says so.
    """

    def __init__(self, context: RuleContext, answers: Mapping[str, RuleAnswer]) -> None:
        self._case = context
        self._before = answers
        self._trials: dict[str, _Trial | None] = {}

    def fixes(self, problem: Problem, rule: Rule) -> tuple[Fix, ...]:
        """Return the first few candidates that hold when evaluated."""
        if problem.candidates is None:
            return ()
        offered: list[Fix] = []
        for candidate in islice(problem.candidates(), MAX_CANDIDATES):
            candidate = self._with_driver_parts(candidate)
            if not candidate.set or any(_includes(candidate.set, fix.set) for fix in offered):
                continue  # less was enough
            trial = self._trial(candidate.set)
            if trial and trial.mends(problem, rule) and not trial.breaks_a_fact:
                remark = " (then needs its own blessed entry and evidence)"
                message = candidate.message + (remark if trial.needs_blessing else "")
                offered.append(Fix(candidate.set, message))
            if len(offered) >= MAX_FIXES.get(problem.outcome, 0):
                break
        return tuple(offered)

    def _with_driver_parts(self, candidate: Candidate) -> Candidate:
        """Return the candidate with the parts of the nodes that must have the driver's version."""
        if "driver" not in candidate.set or not self._case.pool.node:
            return candidate
        driver, node = candidate.set["driver"], self._case.pool.node
        moved = [
            name
            for name in _SAME_VERSION
            if name in node and name not in candidate.set and node[name] != driver
        ]
        if not moved:
            return candidate
        titles = " and ".join(_SAME_VERSION[name] for name in moved)
        message = f"{candidate.message}, and {titles} to the same version"
        return Candidate({**candidate.set, **dict.fromkeys(moved, driver)}, message)

    def _trial(self, changes: Mapping[str, Any]) -> _Trial | None:
        key = repr(sorted(changes.items()))
        if key not in self._trials:
            changed = parts_of(changes, self._case.facts.frameworks)
            try:
                after = apply_changes(self._case, changes, changed)
            except BadInput:
                self._trials[key] = None
            else:
                self._trials[key] = _Trial(self._before, after, changed)
        return self._trials[key]


def _includes(changes: Mapping[str, Any], less: Mapping[str, Any]) -> bool:
    """Return whether a change includes a smaller one; any newer driver is in ``>=X``."""
    return all(
        name in changes and (changes[name] == value or (name == "driver" and _is_floor(value)))
        for name, value in less.items()
    )


def _is_floor(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(">=")


def apply_changes(
    context: RuleContext, changes: Mapping[str, Any], changed: Parts | None = None
) -> RuleContext:
    """Apply a fix to a context: ``>=X`` means X itself, None removes.

    ``changed`` None derives the parts that the changes may change.
    """
    pool, stack = context.pool, context.stack
    ours = {
        name: (value[2:].partition(",")[0] if _is_floor(value) else value)
        for name, value in changes.items()
    }
    if driver := ours.pop("driver", None):
        pool = replace(pool, driver=parse_version("driver", driver))
    if gpu := ours.pop("gpu", None):
        pool = replace(pool, gpu=resolve_gpu(gpu, context.facts.gpus))
    node = {name: ours.pop(name) for name in POOL_CHANGES if name in ours}
    if node:
        pool = change_pool(pool, node, context.facts.gpus)
    facts = context.facts
    if ours:
        stack = complete_stack(update_stack(stack, ours), facts.frameworks)
        stack = assume_cuda(stack, facts, (pool,))
    return context.on(stack, pool, changed or parts_of(changes, facts.frameworks))


def _rank_components(answer: RuleAnswer) -> dict[str, int]:
    weights: dict[str, int] = {}
    for problem in () if isinstance(answer, str) else answer:
        weights[problem.component] = max(
            weights.get(problem.component, 0), OUTCOME_RANK[problem.outcome]
        )
    return weights
