"""What a rule is: one function from a case to an answer, whose docstring is its documentation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.facts import Source
from compatgate.core.parts import EVERYTHING, Parts
from compatgate.core.verdict import FindingOutcome

if TYPE_CHECKING:
    from compatgate.core.case import Case


class Candidate(Struct, frozen=True):
    """A change that may mend a problem; it is offered only after it was evaluated.

    ``set`` has the form of `compatgate.core.verdict.Fix`.
    """

    set: dict[str, Any]
    message: str


class Problem(Struct, frozen=True):
    """A rule's answer that is neither "holds" nor "does not apply".

    Attributes:
        candidates: gives changes that may mend it, smallest first; called only when fixes are
            wanted.
    """

    outcome: FindingOutcome
    component: str
    message: str
    have: str | None = None
    need: str | None = None
    source: Source | None = None
    candidates: Callable[[], Iterable[Candidate]] | None = None


Cause = Literal["facts", "matrix", "evidence"]
Answer = Sequence[Problem] | Literal["pass", "not-applicable"]
PASS: Final = "pass"  # noqa: S105
NOT_APPLICABLE: Final = "not-applicable"


class Rule(Struct, frozen=True):
    """A rule of the gate.

    Attributes:
        id: ``CG101``; never changes its meaning.
        name: ``driver-too-old``.
        check: the rule itself; its docstring is what ``compatgate explain`` prints.
        cause: what decides: the vendors' facts alone, the matrix, or evidence of canary runs.
        reads: the parts of the question that it looks at; a fix that changes others need not ask
            it again.
        states_outcome: its facts say themselves whether they deny (the list of known issues); the
            other rules never deny by a fact that is derived.
        pool_only: it looks at the pool alone: its driver's branch, its GPU.
        not_waivable: why no waiver covers it (``records waivers``); empty where one may.
    """

    id: str
    name: str
    check: Callable[[Case], Answer]
    cause: Cause = "facts"
    reads: Parts = EVERYTHING
    states_outcome: bool = False
    pool_only: bool = False
    not_waivable: str = ""

    @property
    def about_facts(self) -> bool:
        """Tell whether the vendors' facts alone decide."""
        return self.cause == "facts"

    def answer(self, case: Case) -> Answer:
        """Return what the rule says of a case; a derived fact is no reason to deny it."""
        said = self.check(case)
        if isinstance(said, str) or self.states_outcome:
            return said
        return [_softened(problem) if _guesses(problem) else problem for problem in said]

    @property
    def documentation(self) -> str:
        """The docstring, dedented."""
        from textwrap import dedent

        first, _, rest = (self.check.__doc__ or "").partition("\n")
        return f"{first.strip()}\n{dedent(rest)}".strip()


def _guesses(problem: Problem) -> bool:
    """Tell whether a problem denies by a fact that nobody published or measured."""
    source = problem.source
    return problem.outcome == "fail" and source is not None and source.confidence == "derived"


def _softened(problem: Problem) -> Problem:
    message = f"{problem.message} (derived from other sources, which is no reason to deny)"
    return replace(problem, outcome="unknown", message=message)


def rule(
    rule_id: str,
    name: str,
    *,
    cause: Cause = "facts",
    reads: Parts = EVERYTHING,
    states_outcome: bool = False,
    pool_only: bool = False,
    not_waivable: str = "",
) -> Callable[[Callable[[Case], Answer]], Rule]:
    """Make a function a rule; the attributes are those of `Rule`."""

    def make(check: Callable[[Case], Answer]) -> Rule:
        return Rule(rule_id, name, check, cause, reads, states_outcome, pool_only, not_waivable)

    return make


def not_checked(component: str, message: str) -> tuple[Problem]:
    """Say what could not be looked at; it does not weigh in the verdict."""
    return (Problem("not-checked", component, message),)
