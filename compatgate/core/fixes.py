"""Fixes: candidates that were evaluated and mend the finding without breaking another fact."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from msgspec.structs import replace

from compatgate.core.case import Case
from compatgate.core.gpus import resolve_gpu
from compatgate.core.rules import READING_DRIVERS, RULES
from compatgate.core.rules.base import Answer, Problem, Rule
from compatgate.core.stack import complete, with_changes
from compatgate.core.verdict import RANK, Fix
from compatgate.core.versions import parse_version
from compatgate.errors import BadInput

MOST_OFFERED = {"fail": 3, "unknown": 3, "warn": 1}
MOST_EVALUATED = 16
"""Candidates per finding; a fix that is further away is not a small change."""


class _Trial:
    """A change applied to a case; each rule is asked once, whichever finding wants to know.

    Args:
        after: the case with the change.
        only_driver: nothing but the driver is another; most rules do not look at that.
    """

    def __init__(self, after: Case, *, only_driver: bool) -> None:
        self._after = after
        self._answers: dict[str, Answer] = {}
        self._only_driver = only_driver

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Those that may answer otherwise than before."""
        return READING_DRIVERS if self._only_driver else RULES

    def concerns(self, rule: Rule) -> bool:
        """Whether a rule may answer otherwise than before."""
        return rule.reads_driver or not self._only_driver

    def answer(self, rule: Rule) -> Answer:
        """What a rule says after the change."""
        if rule.id not in self._answers:
            self._answers[rule.id] = rule.check(self._after)
        return self._answers[rule.id]


class FixFinder:
    """Finds fixes for the findings of one case.

    A fix holds when the finding's rule no longer objects and no rule about facts objects that did
    not object before. Where the change then needs a matrix entry or evidence, its message says so.

    Args:
        case: the stack on the pool.
        answers: what every rule answered for the case, by id.
    """

    def __init__(self, case: Case, answers: Mapping[str, Answer]) -> None:
        self._case = case
        self._before = answers
        self._trials: dict[str, _Trial | None] = {}

    def fixes(self, problem: Problem, rule: Rule) -> tuple[Fix, ...]:
        """The first few candidates that hold when evaluated."""
        if problem.candidates is None:
            return ()
        offered: list[Fix] = []
        for candidate in islice(problem.candidates(), MOST_EVALUATED):
            if not candidate.set or any(_includes(candidate.set, fix.set) for fix in offered):
                continue  # less was enough
            remark = self._verify(candidate.set, problem, rule)
            if remark is not None:
                offered.append(Fix(candidate.set, candidate.message + remark))
            if len(offered) >= MOST_OFFERED.get(problem.outcome, 0):
                break
        return tuple(offered)

    def _verify(self, changes: Mapping[str, Any], problem: Problem, rule: Rule) -> str | None:
        """None when the change does not hold, else what to add to its message."""
        trial = self._trial(changes)
        if trial is None or not trial.concerns(rule):
            return None
        answer = trial.answer(rule)
        if _still(answer, problem) or _worse(self._before[rule.id], answer):
            return None
        needs_blessing = False
        for other in trial.rules:
            said = trial.answer(other)
            if isinstance(said, str) or not _worse(self._before[other.id], said):
                continue
            if other.about_facts:
                return None
            needs_blessing = True
        return " (then needs a blessed entry and evidence of its own)" if needs_blessing else ""

    def _trial(self, changes: Mapping[str, Any]) -> _Trial | None:
        key = repr(sorted(changes.items()))
        if key not in self._trials:
            try:
                after = apply_changes(self._case, changes)
            except BadInput:
                self._trials[key] = None
            else:
                self._trials[key] = _Trial(after, only_driver=changes.keys() == {"driver"})
        return self._trials[key]


def _includes(changes: Mapping[str, Any], less: Mapping[str, Any]) -> bool:
    """Whether a change does all that a smaller one does; any newer driver is in ``>=X``."""
    return all(
        name in changes and (changes[name] == value or (name == "driver" and _is_floor(value)))
        for name, value in less.items()
    )


def _is_floor(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(">=")


def apply_changes(case: Case, changes: Mapping[str, Any]) -> Case:
    """The case after a fix: ``>=X`` means X itself, None removes.

    Raises:
        BadInput: a change that is not possible (an empty stack, a malformed value).
    """
    pool = case.pool
    ours = {name: _concrete(value) for name, value in changes.items()}
    if driver := ours.pop("driver", None):
        pool = replace(pool, driver=parse_version("driver", driver))
        if not ours:
            return case.on_driver(pool)
    if gpu := ours.pop("gpu", None):
        pool = replace(pool, gpu=resolve_gpu(gpu, case.facts.gpus))
    stack = with_changes(case.stack, ours) if ours else case.stack
    return case.on(complete(stack), pool)


def _concrete(value: Any) -> Any:
    return value[2:].partition(",")[0] if _is_floor(value) else value


def _still(answer: Answer, problem: Problem) -> bool:
    """Whether the rule says about as bad a thing of the same component as before."""
    weight = _weights(answer).get(problem.component, 0)
    return weight >= (1 if problem.outcome == "warn" else 2)


def _worse(before: Answer, after: Answer) -> bool:
    """Whether a rule now says worse of some component; warnings do not count."""
    known = _weights(before)
    return any(weight > max(known.get(name, 0), 1) for name, weight in _weights(after).items())


def _weights(answer: Answer) -> dict[str, int]:
    """How bad, per component."""
    weights: dict[str, int] = {}
    for problem in () if isinstance(answer, str) else answer:
        weights[problem.component] = max(weights.get(problem.component, 0), RANK[problem.outcome])
    return weights
