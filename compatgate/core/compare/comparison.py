"""Decide the same subjects in two worlds, and say what differs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from compatgate.core.compare.differences import (
    CHANGE_ORDER,
    Difference,
    Effect,
    Reason,
    ReasonCause,
    Subject,
    VerdictChange,
    cause_of,
    compare_verdicts,
    new_findings,
)
from compatgate.core.compare.worlds import Answer, Evaluator, NoAnswer, World
from compatgate.core.entry_stacks import StackSamples
from compatgate.core.matrix import STATUSES_IN_USE, Entry, Matrix
from compatgate.core.request import Target, change_stack
from compatgate.core.rule import OUTCOME_RANK, Finding, Outcome, Verdict
from compatgate.core.rules import BY_ID
from compatgate.core.rules.matrix import not_blessed
from compatgate.core.stack import Stack, parse_stack
from compatgate.errors import BadInput

_NO_CHANGES: Mapping[str, Any] = {}
_encode = msgspec.json.Encoder(order="deterministic").encode
_Case = tuple[Stack, tuple[str, ...]]
"""A stack, and the pools on which it is one question; none: every pool of its target."""


def list_entries_in_use(matrix: Matrix, target: str) -> list[Subject]:
    """Return the entries that workloads of a target may match, as subjects."""
    return [
        Subject("entry", entry.name, target, entry.status, entry)
        for entry in matrix.entries.of(target)
        if entry.status in STATUSES_IN_USE
    ]


def compare(
    before: World,
    after: World,
    subjects: Iterable[Subject],
    now: datetime,
    *,
    changes: Mapping[str, Any] = _NO_CHANGES,
    with_fixes: bool = True,
) -> tuple[Subject, ...]:
    """Return subjects as they are decided in two worlds.

    Entries, and stacks whose pools are evaluated apart, are left out where they concern no pool.
    The older facts choose the stacks of entries, so that a release that only the newer facts know
    represents none. ``changes`` are those of every stack; the worlds have those of the pools. With
    fixes, these are found where an entry or a stack gets worse on a pool.
    """
    comparison = Comparison(before, after, now, changes, with_fixes=with_fixes)
    return tuple(filter(None, map(comparison, subjects)))


class Comparison:
    """Compares one subject at a time; ``evaluators`` decide before and after the change."""

    def __init__(
        self,
        before: World,
        after: World,
        now: datetime,
        changes: Mapping[str, Any] = _NO_CHANGES,
        *,
        with_fixes: bool = True,
    ) -> None:
        self.evaluators = Evaluator(before, now), Evaluator(after, now)
        self._changes, self._with_fixes = changes, with_fixes
        self._samples = StackSamples(before.facts, before.matrix)
        self._alike: dict[tuple[Any, ...], Subject | None] = {}
        self._stacks: dict[bytes, Stack] = {}
        self._verdicts: dict[tuple[int, int], VerdictChange] = {}

    def __call__(self, subject: Subject) -> Subject | None:
        """Return the subject with its cases; None: it concerns none of the pools."""
        if subject.row is None:
            try:
                cases = self._list_stacks(subject)
                return self._decide(subject, cases) if cases else None
            except BadInput as error:
                return replace(subject, open=(error.detail,))
        entry = subject.row  # entries that state the same are compared once
        key = (subject.target, entry.status, entry.gpus, *entry.components.items())
        if key not in self._alike:
            self._alike[key] = self._compare_entry(subject, entry)
        known = self._alike[key]
        return known and replace(subject, cases=known.cases, open=known.open)

    def _compare_entry(self, subject: Subject, entry: Entry) -> Subject | None:
        before, after = self._find_places(subject, ())
        if isinstance(before, NoAnswer) or isinstance(after, NoAnswer):
            return None
        changed = {pool.name: pool for pool in after.pools}
        pools = [
            pool
            for pool in before.pools
            if pool.name in changed and (entry.is_for(pool) or entry.is_for(changed[pool.name]))
        ]
        if not pools:
            return None
        stacks, open_ = self._samples.of(entry, pools)
        if not all(stacks):
            return replace(subject, open=open_)
        pairs = zip(pools, stacks, strict=True)
        cases = [(stack, (pool.name,)) for pool, of_pool in pairs for stack in of_pool]
        return self._decide(subject, cases)

    def _list_stacks(self, subject: Subject) -> list[_Case]:
        key = _encode(subject.stack)
        try:
            if key not in self._stacks:
                self._stacks[key] = parse_stack(subject.stack)
        except BadInput as error:
            raise BadInput(f"it can no longer be read: {error.detail}") from None
        stack = replace(self._stacks[key], image=subject.image)
        if not subject.apart:
            return [(stack, subject.within)]
        place = self._find_places(subject, ())[0]
        pools = [] if isinstance(place, NoAnswer) else [pool.name for pool in place.pools]
        return [(stack, (name,)) for name in pools if not subject.within or name in subject.within]

    def _find_places(
        self, subject: Subject, pools: Sequence[str]
    ) -> tuple[Target | NoAnswer, Target | NoAnswer]:
        if subject.places is not None:
            return subject.places
        before, after = self.evaluators
        return before.find_place(subject.target, pools), after.find_place(subject.target, pools)

    def _decide(self, subject: Subject, stacks: Iterable[_Case]) -> Subject:
        cases = tuple(self._compare_case(subject, stack, pools) for stack, pools in stacks)
        return replace(subject, cases=cases)

    def _compare_case(self, subject: Subject, stack: Stack, pools: tuple[str, ...]) -> Difference:
        try:
            changed = change_stack(stack, self._changes)
        except BadInput as error:
            if subject.row is not None:
                raise
            raise BadInput(f"the change cannot be applied to it: {error.detail}") from None
        places = self._find_places(subject, pools)
        before, after = (
            place if isinstance(place, NoAnswer) else evaluate(one, place)
            for evaluate, one, place in zip(self.evaluators, (stack, changed), places, strict=True)
        )
        apart = subject.row is not None or subject.apart
        return self._describe(subject, before, after, changed, places[1], pools[0] if apart else "")

    def _describe(
        self,
        subject: Subject,
        before: Answer,
        after: Answer,
        stack: Stack,
        place: Target | NoAnswer,
        pool: str,
    ) -> Difference:
        """Return what differs between two answers, with fixes where the later one is worse."""
        effect = _find_effect(before, after)
        change = VerdictChange(is_open=True)
        if not (isinstance(before, NoAnswer) or isinstance(after, NoAnswer)):
            key = (id(before), id(after))  # of verdicts that the evaluators keep
            if key not in self._verdicts:
                self._verdicts[key] = compare_verdicts(before, after)
            change = self._verdicts[key]
            lost = change.lost
            if pool and self._with_fixes and CHANGE_ORDER[change.change] > CHANGE_ORDER["same"]:
                assert isinstance(place, Target)  # noqa: S101 - it gave a verdict
                lost = new_findings(before, self.evaluators[1](stack, place, with_fixes=True))
            if self._changes:
                lost = tuple(self._adapt(one, subject.row) for one in lost)
            change = replace(change, lost=lost)
        return Difference(
            pool=pool,
            stack=stack.to_json(),
            before=_outcome(before),
            after=_outcome(after),
            allowed=(_is_allowed(before), _is_allowed(after)),
            effect=effect,
            reason=_find_reason(subject.target, effect, before, after) if effect else None,
            **asdict(change),
        )

    def _adapt(self, finding: Finding, entry: Entry | None) -> Finding:
        """Adapt a finding to the changes: no fix undoes them, and the entry is named."""
        changes = self._changes
        if BY_ID[finding.rule].about_facts:
            return finding
        fixes = tuple(f for f in finding.fixes if not any(name in changes for name in f.set))
        bounds = {}
        if entry is not None and finding.rule == not_blessed.id:
            bounds = {name: entry.components[name] for name in changes if name in entry.components}
        if entry is None or not bounds:
            return replace(finding, fixes=fixes)
        stated = ", ".join(f"{name} {bound}" for name, bound in bounds.items())
        asked = ", ".join(f"{name} {changes[name]}" for name in bounds)
        message = (
            f"it is {entry.status} with {stated}, and no entry blesses it with {asked}; "
            "run its suites on staging, then widen the entry or add one"
        )
        return replace(finding, message=message, have=asked, need=stated, fixes=fixes)


def find_pool_findings(pairs: Iterable[tuple[Verdict, Verdict]]) -> tuple[Finding, ...]:
    """Return new findings about the pools themselves; pools share equal findings."""
    findings: dict[tuple[str, str], Finding] = {}
    for before, after in pairs:
        for finding in new_findings(before, after):
            if BY_ID[finding.rule].pool_only:
                known = findings.setdefault((finding.rule, finding.message), finding)
                pools = dict.fromkeys((*known.pools, *finding.pools))
                findings[finding.rule, finding.message] = replace(known, pools=tuple(pools))
    return tuple(findings.values())


# --- what a difference means for whoever asks ------------------------------------------------


def _is_allowed(answer: Answer) -> bool:
    return isinstance(answer, Verdict) and answer.allowed


def _outcome(answer: Answer) -> Outcome | None:
    return answer.verdict if isinstance(answer, Verdict) else None


def _find_effect(before: Answer, after: Answer) -> Effect | None:
    allowed = _is_allowed(before), _is_allowed(after)
    if allowed == (True, False):
        unknown = after.unknown if isinstance(after, NoAnswer) else after.verdict == "unknown"
        return "newly_unknown" if unknown else "newly_denied"
    if allowed == (False, True):
        return "newly_allowed"
    return "changed" if _outcome(before) != _outcome(after) else None


def _find_reason(target: str, effect: Effect, before: Answer, after: Answer) -> Reason:
    """Return why an answer differs: the worst finding that the worse answer has more."""
    if isinstance(after, NoAnswer):
        places = {} if isinstance(before, NoAnswer) else _count_nodes(target, before)
        return Reason("target", None, after.message, places)
    if isinstance(before, NoAnswer):
        return Reason("target", None, f"so far: {before.message}", _count_nodes(target, after))
    worse = effect in ("newly_denied", "newly_unknown") or (
        effect == "changed" and OUTCOME_RANK[after.verdict] > OUTCOME_RANK[before.verdict]
    )
    old, new = (before, after) if worse else (after, before)
    finding, cause = _find_decisive(old, new)
    if finding is None:
        message = f"the policy is in mode {after.mode}, and was in mode {before.mode}"
        return Reason(cause, None, message, _count_nodes(target, after))
    places = _count_nodes(target, new, finding.pools)
    return Reason(cause, finding.rule, finding.message, places)


def _find_decisive(old: Verdict, new: Verdict) -> tuple[Finding | None, ReasonCause]:
    """Return the first of the worst findings that one verdict has more, and its cause.

    Where the findings are the same, the policy treats them otherwise.
    """
    more = [f for f in new_findings(old, new) if OUTCOME_RANK[f.outcome]]
    worst = max(more, key=lambda f: OUTCOME_RANK[f.outcome], default=None)
    if worst is not None and OUTCOME_RANK[worst.outcome] == OUTCOME_RANK[new.verdict]:
        return worst, cause_of(worst)
    weighing = [f for f in new.findings if OUTCOME_RANK[f.outcome]]
    return max(weighing, key=lambda f: OUTCOME_RANK[f.outcome], default=None), "policy"


def _count_nodes(
    target: str, answer: Verdict, pools: Sequence[str] = ()
) -> dict[tuple[str, str], int]:
    return {
        (target, pool["name"]): pool["count"]
        for pool in answer.pools
        if not pools or pool["name"] in pools
    }


def summarise_places(reasons: Iterable[Reason]) -> int:
    """Return the number of nodes that reasons concern; those of a pool count once."""
    return sum({place: n for one in reasons for place, n in one.places.items()}.values())
