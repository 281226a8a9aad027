"""Define a rule: one function from a context to an answer, whose docstring is its documentation.

A rule names the parts of a question that it reads. A fix that changes none of these parts does not
change its answer. A rule that names no parts reads everything.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.components import COMPONENTS, is_name
from compatgate.core.facts.nvidia import Source
from compatgate.core.stack import canonical_key
from compatgate.core.stack_values import SPECIAL
from compatgate.core.verdict import FindingOutcome

if TYPE_CHECKING:
    from compatgate.core.rule_context import RuleContext

Part = Literal[
    "driver", "cuda-compat", "arch", "cuda", "cudnn", "nccl", "python", "builds", "packages"
]
Parts = frozenset[Part]
DRIVER: Parts = frozenset(("driver",))
FORWARD: Parts = frozenset(("cuda-compat", "driver"))
CUDA: Parts = frozenset(("cuda", "builds"))
"""The stack's CUDA is stated, or a framework brings it."""
CODE: Parts = CUDA | {"arch"}
CUDNN: Parts = CUDA | {"cudnn"}
NCCL: Parts = CUDA | {"nccl"}
STACK_VERSIONS: Parts = CUDA | {"cudnn", "nccl", "python"}
RECORDS: Parts = CUDA | {"packages", "python"}
"""The parts that decide which wheel a package is."""
PACKAGES: Parts = STACK_VERSIONS | {"packages"}
"""Packages require other packages and components."""
VERSIONS: Parts = PACKAGES | DRIVER
NOTHING: Parts = frozenset()
EVERYTHING: Parts = VERSIONS | {"cuda-compat", "arch"}
_PARTS_OF_KEYS: dict[str, Parts] = {
    "driver": DRIVER,
    "cuda-compat": frozenset(("cuda-compat",)),
    "cuda-compat-use": frozenset(("cuda-compat",)),
    "arch": frozenset(("arch",)),
    "cuda": frozenset(("cuda",)),
    "cudnn": frozenset(("cudnn",)),
    "nccl": frozenset(("nccl",)),
    "python": frozenset(("python",)),
}

_NO_PACKAGES = frozenset(("gpu", "os", "cpu", *SPECIAL))
_ONE_PACKAGE: Parts = frozenset(("packages",))


def _of_builds(name: str, frameworks: Container[str]) -> Parts:
    if name in COMPONENTS:
        return CUDA
    if name in frameworks:
        return EVERYTHING
    return _ONE_PACKAGE if name not in _NO_PACKAGES and is_name(name) else EVERYTHING


def parts_of(keys: Iterable[str], frameworks: Container[str] = ()) -> Parts:
    """Return the parts that a change of these keys of ``set`` may change.

    A component that has no part of its own belongs to ``builds``: it may bring another CUDA. A
    package brings none. An unknown key (the pool's GPU, the image's requirements) may change
    everything.

    Args:
        keys: components, packages and others.
        frameworks: names of frameworks; they bring a CUDA even if they are not components.
    """
    found: Parts = NOTHING
    for key in keys:
        name = canonical_key(key)
        found |= _PARTS_OF_KEYS.get(name) or _of_builds(name, frameworks)
    return found


class Candidate(Struct, frozen=True):
    """A change that may mend a problem; only an evaluated candidate becomes a fix.

    ``set`` has the form of `compatgate.core.verdict.Fix`.
    """

    set: dict[str, Any]
    message: str


class Problem(Struct, frozen=True):
    """A rule's answer that is neither "holds" nor "does not apply".

    Attributes:
        candidates: yields changes that may mend it, smallest first; called only for fixes.
    """

    outcome: FindingOutcome
    component: str
    message: str
    have: str | None = None
    need: str | None = None
    source: Source | None = None
    candidates: Callable[[], Iterable[Candidate]] | None = None


Cause = Literal["facts", "matrix", "evidence"]
RuleAnswer = Sequence[Problem] | Literal["pass", "not-applicable"]
PASS: Final = "pass"  # noqa: S105
NOT_APPLICABLE: Final = "not-applicable"


class Rule(Struct, frozen=True):
    """A rule of the gate.

    Attributes:
        id: ``CG101``; never changes its meaning.
        name: ``driver-too-old``.
        check: the rule itself; ``compatgate explain`` prints its docstring.
        cause: basis of the rule: the vendors' facts alone, the matrix, or canary evidence.
        reads: the parts of the question that it reads; a fix that changes other parts does not ask
            it again.
        states_outcome: its facts themselves say whether they deny (the list of known issues);
            other rules never deny by a derived fact.
        pool_only: it reads the pool alone: its driver's branch, its GPU.
        not_waivable: why no waiver covers it (``records waivers``); empty where a waiver may.
    """

    id: str
    name: str
    check: Callable[[RuleContext], RuleAnswer]
    cause: Cause = "facts"
    reads: Parts = EVERYTHING
    states_outcome: bool = False
    pool_only: bool = False
    not_waivable: str = ""

    @property
    def about_facts(self) -> bool:
        """Tell whether the vendors' facts alone decide."""
        return self.cause == "facts"

    def answer(self, context: RuleContext) -> RuleAnswer:
        """Return the rule's answer for a context; a derived fact never denies."""
        said = self.check(context)
        if isinstance(said, str) or self.states_outcome:
            return said
        return [
            _soften(problem) if _denies_by_derived_fact(problem) else problem for problem in said
        ]

    @property
    def documentation(self) -> str:
        """Return the docstring, dedented."""
        from textwrap import dedent

        first, _, rest = (self.check.__doc__ or "").partition("\n")
        return f"{first.strip()}\n{dedent(rest)}".strip()


def _denies_by_derived_fact(problem: Problem) -> bool:
    """Tell whether a problem denies by a fact that nobody published or measured."""
    source = problem.source
    return problem.outcome == "fail" and source is not None and source.confidence == "derived"


def _soften(problem: Problem) -> Problem:
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
) -> Callable[[Callable[[RuleContext], RuleAnswer]], Rule]:
    """Turn a function into a rule; the arguments are the attributes of `Rule`."""

    def make(check: Callable[[RuleContext], RuleAnswer]) -> Rule:
        return Rule(rule_id, name, check, cause, reads, states_outcome, pool_only, not_waivable)

    return make


def not_checked(component: str, message: str) -> tuple[Problem]:
    """Report what could not be checked, without weight in the verdict."""
    return (Problem("not-checked", component, message),)
