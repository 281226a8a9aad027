"""Define rules and their results: problems, findings with fixes, and the verdict.

A rule is one function from a context to an answer, whose docstring is its documentation. It
names the parts of a question that it reads: a fix that changes none of these parts does not
change its answer. A rule that names no parts reads everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from compatgate.core.facts.nvidia import Source
from compatgate.core.parts import EVERYTHING, OPTIONAL, Candidate, Parts

if TYPE_CHECKING:
    from compatgate.core.rule_context import RuleContext

Outcome = Literal["pass", "warn", "unknown", "fail"]
FindingOutcome = Literal["fail", "unknown", "warn", "waived", "not-checked"]
Basis = Literal["image", "stated", "what-if"]
Reason = Literal["left-out", "no-effect", "missing-fact"]
"""Why a rule did not judge: the question leaves a value out; no value that the facts know would
stop the stack; or the facts lack a value that could stop it, so that the answer is unknown."""
OUTCOME_RANK: dict[str, int] = {
    "pass": 0,
    "waived": 0,
    "not-checked": 0,
    "warn": 1,
    "unknown": 2,
    "fail": 3,
}
"""Rank of each outcome; the verdict is the worst of its findings."""
REFUSING = ("fail", "unknown")
"""Outcomes and verdicts that refuse a stack, where a policy is enforced."""


class Fix(Struct, frozen=True, gc=False):
    """A small change that mends a finding; it was evaluated.

    Attributes:
        set: component (or ``driver``, ``gpu``, ``arch``, ``cuda-compat``) to a version, to a lower
            bound (``>=525.60.13``), to a list of architectures, or to None: remove it.
    """

    set: dict[str, Any]
    message: str


def fix_value(value: Any) -> str:
    """Return a fix's value as an option or field takes it: the lowest bound; empty removes."""
    if value is None:
        return ""
    if isinstance(value, list):
        return "+".join(map(str, value))
    return str(value).removeprefix(">=").removeprefix("==").partition(",")[0]


class Finding(Struct, frozen=True, gc=False):
    """One rule's result on one or more pools.

    Attributes:
        rule: id, ``CG101``.
        name: ``driver-too-old``.
        outcome: ``not-checked`` reports what a rule could not check; it has no weight.
        pools: names of the pools that share this finding.
        need: a value that would pass, as a constraint or in words.
        fixes: smallest verified changes.
    """

    rule: Annotated[str, Meta(pattern="^CG[0-9]{3}$")]
    name: str
    outcome: FindingOutcome
    pools: tuple[str, ...]
    component: str
    have: str | None
    need: str | None
    message: str
    source: Source | None
    fixes: tuple[Fix, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the form that answers carry."""
        return _to_json(self)


class Checked(Struct, frozen=True, gc=False):
    """The rules that held, and those that did not apply; all others have a finding."""

    passed: tuple[str, ...]
    not_applicable: tuple[str, ...]


class Verdict(Struct, frozen=True, gc=False, kw_only=True):
    """The answer to "may this stack run on that target?"."""

    # digest of the answer and its basis; the same question on the same facts, matrix and evidence
    # has the same id
    id: str
    verdict: Outcome  # the worst outcome of the findings
    allowed: bool  # the policy's decision on the verdict
    mode: str
    target: str | None
    findings: tuple[Finding, ...]
    checked: Checked
    stack: dict[str, Any]  # the evaluated stack, in JSON form
    image: str | None = None
    # origin of the stack: the gate read the ``image`` and nothing else; the asker ``stated`` it, or
    # a part of it; or ``set`` changed stack or pools (``what-if``)
    basis: Basis = "stated"
    pools: tuple[dict[str, Any], ...]  # the evaluated pools, in JSON form
    matrix_revision: int
    entries: dict[str, str] = {}  # the matrix entry that matched best, by pool
    facts: str  # digest of the catalog
    overlays: tuple[str, ...] = ()  # the operator's fact files that were used
    evidence: tuple[str, ...] = ()  # ids of the runs that the answer rests on
    decided_at: str = ""
    # earliest ISO time from which the answer may differ; None: no time is known
    valid_until: str | None = None

    @property
    def failing(self) -> tuple[Finding, ...]:
        """Return the findings with the verdict's own outcome."""
        return tuple(f for f in self.findings if f.outcome == self.verdict)

    @property
    def deciding_rules(self) -> list[str]:
        """Return the ids of the rules with the verdict's own outcome; empty: it passed."""
        return list(dict.fromkeys(finding.rule for finding in self.failing))

    def to_json(self) -> dict[str, Any]:
        """Return the form of ``POST /gate``; `msgspec.json.encode` writes it as well."""
        return _to_json(self)


def _to_json(value: Struct) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value))
    return body


EXIT_ALLOWED, EXIT_DENIED, EXIT_BAD_INPUT, EXIT_NO_DECISION = 0, 1, 2, 3
_EXIT_ORDER = (EXIT_BAD_INPUT, EXIT_DENIED, EXIT_NO_DECISION, EXIT_ALLOWED)
"""A denial outweighs no decision, so that failing open never hides one."""


def exit_code(verdict: Outcome, *, allowed: bool) -> int:
    """Return the command line's exit status for a verdict: 0 allowed, 1 denied, 3 no decision."""
    if allowed:
        return EXIT_ALLOWED
    return EXIT_NO_DECISION if verdict == "unknown" else EXIT_DENIED


def worst_exit(*statuses: int) -> int:
    """Return the exit status of several answers; 0 if there are none."""
    return min(statuses, key=_EXIT_ORDER.index, default=EXIT_ALLOWED)


class Problem(Struct, frozen=True):
    """A rule's answer that is neither "holds" nor "does not apply".

    Attributes:
        candidates: yields changes that may mend it, smallest first; called only for fixes.
        reason: why the rule did not judge, where it did not.
    """

    outcome: FindingOutcome
    component: str
    message: str
    have: str | None = None
    need: str | None = None
    source: Source | None = None
    candidates: Callable[[], Iterable[Candidate]] | None = None
    reason: Reason | None = None


Cause = Literal["facts", "matrix", "evidence"]
RuleAnswer = Sequence[Problem] | Literal["pass", "not-applicable"]
Answer = RuleAnswer | Problem  # what the function of a rule returns; one problem needs no sequence
PASS: Final = "pass"  # noqa: S105
NOT_APPLICABLE: Final = "not-applicable"


def list_problems(answer: Answer) -> Sequence[Problem]:
    """Return the problems of an answer; none if the rule holds or does not apply."""
    if isinstance(answer, str):
        return ()
    return (answer,) if isinstance(answer, Problem) else answer


class Rule(Struct, frozen=True):
    """A rule of the gate."""

    id: str  # ``CG101``; never changes its meaning
    name: str  # ``driver-too-old``
    # the rule itself; ``compatgate explain`` prints its docstring
    check: Callable[[RuleContext], Answer]
    # basis of the rule: the vendors' facts alone, the matrix, or canary evidence
    cause: Cause = "facts"
    # the parts of the question that it reads; a fix that changes other parts does not ask it again.
    # A rule that reads parts of `OPTIONAL` applies only if the question has one.
    reads: Parts = EVERYTHING
    # its facts themselves say whether they deny (the list of known issues); other rules never deny
    # by a derived fact
    states_outcome: bool = False
    pool_only: bool = False  # it reads the pool alone: its driver's branch, its GPU
    # why no waiver covers it (``records waivers``); empty where a waiver may
    not_waivable: str = ""

    def finding(
        self,
        outcome: FindingOutcome,
        pools: tuple[str, ...],
        component: str,
        have: str | None,
        need: str | None,
        message: str,
        source: Source | None = None,
        fixes: tuple[Fix, ...] = (),
    ) -> Finding:
        """Return a finding of this rule."""
        return Finding(
            self.id, self.name, outcome, pools, component, have, need, message, source, fixes
        )

    @property
    def about_facts(self) -> bool:
        """Tell whether the vendors' facts alone decide."""
        return self.cause == "facts"

    def applies_to(self, stated: Parts) -> bool:
        """Tell whether the rule can object to a question that has these of the `OPTIONAL`."""
        subject = self.reads & OPTIONAL
        return not subject or self.reads == EVERYTHING or not subject.isdisjoint(stated)

    def answer(self, context: RuleContext) -> RuleAnswer:
        """Return the rule's answer for a context.

        A derived fact never denies, and a missing fact only warns on a target that audits them.
        """
        answer = self.check(context)
        return answer if isinstance(answer, str) else self.weigh(answer, context)

    def weigh(self, answer: Answer, context: RuleContext) -> list[Problem]:
        """Return the problems of an answer, each with the outcome that it can have."""
        return [self._weigh(problem, context) for problem in list_problems(answer)]

    def _weigh(self, problem: Problem, context: RuleContext) -> Problem:
        if problem.reason == "missing-fact" and context.policy.missing_facts == "audit":
            message = f"{problem.message} (a warning until the target says missingFacts: enforce)"
            return replace(problem, outcome="warn", message=message)
        if problem.outcome != "fail" or self.states_outcome:
            return problem
        derived = problem.source is not None and problem.source.confidence == "derived"
        compares_cuda = problem.component in ("driver", "cuda") and not self.pool_only
        if not derived and not (
            compares_cuda
            and context.infers_cuda  # from releases near one without facts
            and (self.id != "CG101" or not context.names_cuda_major)
        ):
            return problem
        message = f"{problem.message} (derived from other sources, so it does not deny)"
        return replace(problem, outcome="unknown", message=message)

    @property
    def documentation(self) -> str:
        """Return the docstring, dedented."""
        from inspect import cleandoc

        return cleandoc(self.check.__doc__ or "")


def rule(
    rule_id: str,
    name: str,
    *,
    cause: Cause = "facts",
    reads: Parts = EVERYTHING,
    states_outcome: bool = False,
    pool_only: bool = False,
    not_waivable: str = "",
) -> Callable[[Callable[[RuleContext], Answer]], Rule]:
    """Turn a function into a rule; the arguments are the attributes of `Rule`."""

    def make(check: Callable[[RuleContext], Answer]) -> Rule:
        return Rule(rule_id, name, check, cause, reads, states_outcome, pool_only, not_waivable)

    return make


def report_left_out(component: str, message: str, source: Source | None = None) -> tuple[Problem]:
    """Report what the question leaves out, without weight in the verdict."""
    return (Problem("not-checked", component, message, source=source, reason="left-out"),)


def report_no_effect(component: str, message: str, source: Source | None = None) -> tuple[Problem]:
    """Report what was not compared, where no value that the facts know would stop the stack."""
    return (Problem("not-checked", component, message, source=source, reason="no-effect"),)


def report_missing_fact(
    component: str,
    message: str,
    *,
    need: str,
    have: str | None = None,
    source: Source | None = None,
    candidates: Callable[[], Iterable[Candidate]] | None = None,
) -> tuple[Problem]:
    """Report that the facts lack what decides about a stated value: the answer is unknown."""
    problem = Problem("unknown", component, message, have, need, source, candidates)
    return (replace(problem, reason="missing-fact"),)
