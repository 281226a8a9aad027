"""Decide recorded questions on two states of the matrix, and group the differences by cause.

A question counts as a whole, as the gate answers it: the verdict is the worst over its pools. Both
sides are decided at the same moment, so that only the change of the matrix or the facts differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.facts import Facts
from compatgate.core.matrix import Matrix
from compatgate.core.reevaluation import Reevaluator, cause_of, new_findings
from compatgate.core.request import Target
from compatgate.core.rule import OUTCOME_RANK, Finding, Outcome, Verdict
from compatgate.core.rules import BY_ID
from compatgate.core.stack import Stack, parse_stack
from compatgate.core.whatif_result import Cause
from compatgate.errors import BadInput

QuestionOrigin = Literal["decision", "run"]
"""The source of a question: the decision log, or a canary run."""
Effect = Literal["newly_denied", "newly_unknown", "newly_allowed", "changed"]
EFFECTS: tuple[Effect, ...] = ("newly_denied", "newly_unknown", "newly_allowed", "changed")
"""Worst first. ``newly_unknown`` was allowed and is stopped, because something is not known;
``changed``: another verdict that the policy treats as before."""
BacktestCause = Cause | Literal["policy", "target"]
"""``policy``: the same findings, treated otherwise; ``target``: nothing can be asked there."""
_CAUSE_ORDER: tuple[BacktestCause, ...] = ("target", "facts", "matrix", "evidence", "policy")
_encode = msgspec.json.Encoder(order="deterministic").encode


class MatrixState(Protocol):
    """The basis of decisions: facts, matrix and evidence at one time."""

    @property
    def facts(self) -> Facts:
        """Return the catalog."""
        ...

    @property
    def matrix(self) -> Matrix:
        """Return entries, waivers and evidence."""
        ...

    @property
    def targets(self) -> Mapping[str, Target]:
        """Return the targets by name."""
        ...

    @property
    def unusable(self) -> Mapping[str, str]:
        """Return why the facts cannot resolve a target, by name."""
        ...


class AskedQuestion(Struct, frozen=True):
    """A question that was asked, once or many times.

    Attributes:
        stack: in JSON form.
        pools: names of the pools that it was limited to; empty: every pool of the target.
        verdict_id: of the newest decision, or the id of a run.
        decisions: number of decisions; 0 for a run.
        asked_by: who asked, the latest first.
    """

    target: str
    stack: dict[str, Any]
    verdict_id: str
    first: datetime
    last: datetime
    image: str | None = None
    pools: tuple[str, ...] = ()
    decisions: int = 0
    asked_by: tuple[str, ...] = ()
    origin: QuestionOrigin = "decision"


class QuestionChange(Struct, frozen=True):
    """A question whose answer differs.

    Attributes:
        rule: that decides the difference; None: the target itself does.
        before: verdict; None: there was no answer.
        after: verdict; None: there is no answer.
        places: target and pool of the nodes that it concerns, with their number.
    """

    question: AskedQuestion
    effect: Effect
    cause: BacktestCause
    rule: str | None
    message: str
    before: Outcome | None
    after: Outcome | None
    places: dict[tuple[str, str], int] = {}

    @property
    def nodes(self) -> int:
        """Return the number of nodes that it concerns."""
        return sum(self.places.values())


class ChangeGroup(Struct, frozen=True):
    """Questions whose answer differs for the same reason, the most asked first."""

    effect: Effect
    cause: BacktestCause
    rule: str | None
    changes: tuple[QuestionChange, ...]

    @property
    def decisions(self) -> int:
        """Return the number of recorded decisions."""
        return sum(one.question.decisions for one in self.changes)

    @property
    def nodes(self) -> int:
        """Return the number of nodes; those of a pool count once."""
        return sum({place: n for one in self.changes for place, n in one.places.items()}.values())

    @property
    def targets(self) -> tuple[str, ...]:
        """Return the targets of the questions, by name."""
        return tuple(sorted({one.question.target for one in self.changes}))

    @property
    def asked_by(self) -> tuple[str, ...]:
        """Return who asked, those of the most asked questions first."""
        return tuple(dict.fromkeys(name for one in self.changes for name in one.question.asked_by))

    @property
    def last(self) -> datetime:
        """Return when one of the questions was last asked."""
        return max(one.question.last for one in self.changes)


class Backtest(Struct, frozen=True):
    """The difference that a change makes to recorded questions.

    Attributes:
        groups: by effect, worst first; in it by cause, then the most asked.
        questions: number of questions decided on both sides.
        decisions: number of their recorded decisions.
        left: why a question could not be re-evaluated, by its verdict.
    """

    groups: tuple[ChangeGroup, ...] = ()
    questions: int = 0
    decisions: int = 0
    left: dict[str, str] = {}

    def of(self, effect: Effect) -> tuple[ChangeGroup, ...]:
        """Return the groups of one effect."""
        return tuple(group for group in self.groups if group.effect == effect)


class NoAnswer(Struct, frozen=True):
    """The gate could not answer a question about a target.

    Attributes:
        unknown: the target exists, and the facts cannot resolve it.
    """

    message: str
    unknown: bool = False


Answer = Verdict | NoAnswer


class QuestionDecider:
    """Decides questions on one state, as the gate does.

    Args:
        state: facts, matrix and evidence.
        now: for ends of life, waivers and the age of evidence.
    """

    def __init__(self, state: MatrixState, now: datetime) -> None:
        self._state = state
        self.evaluate = Reevaluator(state.facts, state.matrix, now)

    def __call__(self, question: AskedQuestion, stack: Stack) -> Answer:
        """Return the verdict without fixes, or why there is none.

        Args:
            question: to decide.
            stack: of the question.
        """
        target = self._find_target(question)
        return target if isinstance(target, NoAnswer) else self.evaluate(stack, target)

    def _find_target(self, question: AskedQuestion) -> Target | NoAnswer:
        target = self._state.targets.get(question.target)
        if target is None:
            if why := self._state.unusable.get(question.target):
                return NoAnswer(f"the target {question.target} cannot be used: {why}", unknown=True)
            return NoAnswer(f"target {question.target} does not exist")
        if not question.pools:
            return target
        pools = tuple(pool for pool in target.pools if pool.name in question.pools)
        if len(pools) < len(question.pools):
            gone = set(question.pools) - {pool.name for pool in pools}
            return NoAnswer(f"the target {target.name} has no pool {', '.join(sorted(gone))}")
        return replace(target, pools=pools)


def run_backtest(
    questions: Iterable[AskedQuestion], before: MatrixState, after: MatrixState, now: datetime
) -> Backtest:
    """Decide questions on two states, and group the differences.

    Args:
        questions: each once.
        before: the state now.
        after: the state with a change.
        now: when both sides are decided.
    """
    sides = QuestionDecider(before, now), QuestionDecider(after, now)
    stacks: dict[bytes, Stack] = {}
    changes: list[QuestionChange] = []
    left: dict[str, str] = {}
    count = decisions = 0
    for question in questions:
        try:
            stack = _read_stack(question, stacks)
        except BadInput as error:
            left[question.verdict_id] = f"it can no longer be read: {error.detail}"
            continue
        count, decisions = count + 1, decisions + question.decisions
        if change := compare_answers(question, *(side(question, stack) for side in sides)):
            changes.append(change)
    return Backtest(_group_changes(changes), count, decisions, left)


def _read_stack(question: AskedQuestion, known: dict[bytes, Stack]) -> Stack:
    key = _encode(question.stack)
    if key not in known:
        known[key] = parse_stack(question.stack)
    return replace(known[key], image=question.image)


def compare_answers(
    question: AskedQuestion, before: Answer, after: Answer
) -> QuestionChange | None:
    """Return how the answer to a question changes; None: it is the same for its asker."""
    effect = _find_effect(before, after)
    if effect is None:
        return None
    then, now = _outcome(before), _outcome(after)
    if isinstance(before, NoAnswer) or isinstance(after, NoAnswer):
        return _change_of_target(question, effect, before, after)
    worse = effect in ("newly_denied", "newly_unknown") or (
        effect == "changed" and OUTCOME_RANK[after.verdict] > OUTCOME_RANK[before.verdict]
    )
    old, new = (before, after) if worse else (after, before)
    finding, cause = _find_reason(old, new)
    if finding is None:
        message = f"the policy is in mode {after.mode}, and was in mode {before.mode}"
        places = _count_nodes(question, after)
        return QuestionChange(question, effect, cause, None, message, then, now, places)
    places = _count_nodes(question, new, finding.pools)
    return QuestionChange(question, effect, cause, finding.rule, finding.message, then, now, places)


def _find_effect(before: Answer, after: Answer) -> Effect | None:
    then, now = _is_allowed(before), _is_allowed(after)
    if then and not now:
        unknown = after.unknown if isinstance(after, NoAnswer) else after.verdict == "unknown"
        return "newly_unknown" if unknown else "newly_denied"
    if now and not then:
        return "newly_allowed"
    return "changed" if _outcome(before) != _outcome(after) else None


def _is_allowed(answer: Answer) -> bool:
    return isinstance(answer, Verdict) and answer.allowed


def _outcome(answer: Answer) -> Outcome | None:
    return answer.verdict if isinstance(answer, Verdict) else None


def _change_of_target(
    question: AskedQuestion, effect: Effect, before: Answer, after: Answer
) -> QuestionChange:
    said = after if isinstance(after, NoAnswer) else before
    message = said.message if isinstance(said, NoAnswer) else ""
    if not isinstance(after, NoAnswer):
        message = f"so far: {message}"
    answered = after if isinstance(after, Verdict) else before
    places = _count_nodes(question, answered) if isinstance(answered, Verdict) else {}
    then, now = _outcome(before), _outcome(after)
    return QuestionChange(question, effect, "target", None, message, then, now, places)


def _find_reason(old: Verdict, new: Verdict) -> tuple[Finding | None, BacktestCause]:
    """Return the first of the worst findings that one verdict has more, and its cause.

    Where the findings are the same, the policy treats them otherwise.
    """
    found = [f for f in new_findings(old, new) if OUTCOME_RANK[f.outcome]]
    if found:
        worst = max(found, key=lambda f: OUTCOME_RANK[f.outcome])
        if OUTCOME_RANK[worst.outcome] == OUTCOME_RANK[new.verdict]:
            return worst, cause_of(worst)
    weighing = [f for f in new.findings if OUTCOME_RANK[f.outcome]]
    return max(weighing, key=lambda f: OUTCOME_RANK[f.outcome], default=None), "policy"


def _count_nodes(
    question: AskedQuestion, answer: Verdict, pools: Sequence[str] = ()
) -> dict[tuple[str, str], int]:
    """Return the declared nodes of some pools of an answer; of all, where none is named."""
    return {
        (question.target, pool["name"]): pool["count"]
        for pool in answer.pools
        if not pools or pool["name"] in pools
    }


def _group_changes(changes: Iterable[QuestionChange]) -> tuple[ChangeGroup, ...]:
    groups: dict[tuple[Effect, BacktestCause, str | None], list[QuestionChange]] = {}
    for change in changes:
        groups.setdefault((change.effect, change.cause, change.rule), []).append(change)
    found = [
        ChangeGroup(*key, tuple(sorted(of_key, key=_order_change)))
        for key, of_key in groups.items()
    ]
    return tuple(sorted(found, key=_order_group))


def _order_change(change: QuestionChange) -> tuple[int, int, str]:
    asked = change.question
    return -asked.decisions, -change.nodes, asked.verdict_id


def _order_group(group: ChangeGroup) -> tuple[int, int, int, str]:
    effect, cause = EFFECTS.index(group.effect), _CAUSE_ORDER.index(group.cause)
    return effect, cause, -group.decisions, group.rule or ""


def name_rule(rule: str | None) -> str:
    """Return the name of a rule, ``driver-too-old``; empty for none."""
    return BY_ID[rule].name if rule else ""
