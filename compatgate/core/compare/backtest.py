"""Decide recorded questions in two worlds, and group the differences by effect and cause.

A question counts as a whole, as the gate answers it: the verdict is the worst over its pools.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from compatgate.core.compare.comparison import compare, summarise_places
from compatgate.core.compare.differences import EFFECTS, Effect, Reason, ReasonCause, Subject
from compatgate.core.compare.worlds import World
from compatgate.core.rule import Outcome
from compatgate.core.rules import BY_ID

_CAUSE_ORDER: tuple[ReasonCause, ...] = ("target", "facts", "matrix", "evidence", "policy")


class QuestionChange(Struct, frozen=True, forbid_unknown_fields=True):
    """A question whose answer differs; `before` and `after` null: there is no answer."""

    target: str
    stack: dict[str, Any]
    image: str | None
    pools: Annotated[list[str], Meta(description="pools that the question names; empty: all")]
    origin: Annotated[
        Literal["decision", "run"],
        Meta(description="source of the question: the decision log or a canary run"),
    ]
    verdict_id: Annotated[str, Meta(description="id of the newest verdict or of the run")]
    decisions: int
    asked_by: list[str]
    first: datetime
    last: datetime
    before: Outcome | None
    after: Outcome | None
    message: str
    nodes: Annotated[int, Meta(description="declared nodes of the deciding pools")]


class BacktestGroup(Struct, frozen=True, forbid_unknown_fields=True):
    """Questions whose answer differs for one reason; `examples` lists the most asked."""

    effect: Effect
    cause: Annotated[
        ReasonCause,
        Meta(
            description="the vendors' `facts`, the `matrix`, missing `evidence`, the `policy`"
            " (same findings), or the `target` (it or its pool is gone)"
        ),
    ]
    rule: str | None
    name: Annotated[str, Meta(description="name of the deciding rule; empty: no rule decides")]
    message: Annotated[str, Meta(description="message for the most frequent question")]
    questions: int
    decisions: int
    nodes: Annotated[int, Meta(description="declared nodes; each pool counts once")]
    targets: list[str]
    asked_by: list[str]
    last: datetime
    examples: list[QuestionChange]


class EffectCount(Struct, frozen=True, forbid_unknown_fields=True):
    """The number of questions with one effect, of their decisions, and of nodes."""

    questions: int = 0
    decisions: int = 0
    nodes: int = 0


class BacktestCounts(Struct, frozen=True, forbid_unknown_fields=True):
    """Numbers by effect.

    `newly_unknown` was allowed and is stopped because something is not known; `changed`: another
    verdict that the policy treats as before.
    """

    newly_denied: EffectCount
    newly_unknown: EffectCount
    newly_allowed: EffectCount
    changed: EffectCount


class Backtest(Struct, frozen=True):
    """The difference that a change makes to recorded questions."""

    groups: tuple[BacktestGroup, ...]  # by effect, worst first; in it by cause, then the most asked
    counts: BacktestCounts
    questions: int  # number of questions decided on both sides
    decisions: int  # number of their recorded decisions
    unread: dict[str, str]  # why a question could not be re-evaluated, by its verdict

    @property
    def summary(self) -> str:
        """Return the answer in one line."""
        if not self.questions:
            return "nothing was asked in this period: nothing could be compared"
        parts = [
            f"{count} {effect.replace('_', ' ')}"
            for effect in EFFECTS
            if (count := getattr(self.counts, effect).questions)
        ]
        total = f"{self.questions} question{'' if self.questions == 1 else 's'}"
        decisions = f"{self.decisions} decision{'' if self.decisions == 1 else 's'}"
        return f"{', '.join(parts) or 'no answer changes'} (of {total}, {decisions})"


class _Changed(Struct, frozen=True):
    subject: Subject
    effect: Effect
    reason: Reason
    nodes: int


def run_backtest(
    questions: Iterable[Subject], before: World, after: World, now: datetime, shown: int
) -> Backtest:
    """Decide questions in two worlds at one moment, and group the differences.

    Each group lists its first ``shown`` questions, the most asked.
    """
    compared = compare(before, after, questions, now, with_fixes=False)
    groups: dict[tuple[Effect, ReasonCause, str | None], list[_Changed]] = {}
    by_effect: dict[Effect, list[_Changed]] = {}
    for one in compared:
        for case in one.cases:
            if case.effect and case.reason:
                nodes = summarise_places([case.reason])
                changed = _Changed(one, case.effect, case.reason, nodes)
                key = (case.effect, case.reason.cause, case.reason.rule)
                groups.setdefault(key, []).append(changed)
                by_effect.setdefault(case.effect, []).append(changed)
    made = [_make_group(changes, shown) for changes in groups.values()]
    made.sort(
        key=lambda one: (
            EFFECTS.index(one.effect), _CAUSE_ORDER.index(one.cause), -one.decisions, one.rule or ""
        )
    )  # fmt: skip
    return Backtest(
        tuple(made),
        BacktestCounts(**{effect: _count(by_effect.get(effect, ())) for effect in EFFECTS}),
        sum(not one.open for one in compared),
        sum(one.decisions for one in compared if not one.open),
        {one.name: one.open[0] for one in compared if one.open},
    )


def _count(changes: Sequence[_Changed]) -> EffectCount:
    return EffectCount(
        len(changes),
        sum(one.subject.decisions for one in changes),
        summarise_places(one.reason for one in changes),
    )


def _make_group(changes: Sequence[_Changed], shown: int) -> BacktestGroup:
    changes = sorted(
        changes, key=lambda one: (-one.subject.decisions, -one.nodes, one.subject.name)
    )
    first, count = changes[0], _count(changes)
    rule = first.reason.rule
    return BacktestGroup(
        first.effect,
        first.reason.cause,
        rule,
        BY_ID[rule].name if rule else "",
        first.reason.message,
        count.questions,
        count.decisions,
        count.nodes,
        sorted({one.subject.target for one in changes}),
        list(dict.fromkeys(name for one in changes for name in one.subject.asked_by)),
        max(one.subject.last_asked for one in changes if one.subject.last_asked),
        [_describe(one) for one in changes[:shown]],
    )


def _describe(changed: _Changed) -> QuestionChange:
    one = changed.subject
    (case,) = one.cases
    assert one.first_asked  # noqa: S101 - it is recorded
    assert one.last_asked  # noqa: S101
    return QuestionChange(
        one.target,
        one.stack,
        one.image,
        list(one.within),
        "run" if one.kind == "run" else "decision",
        one.name,
        one.decisions,
        list(one.asked_by),
        one.first_asked,
        one.last_asked,
        case.before,
        case.after,
        changed.reason.message,
        changed.nodes,
    )
