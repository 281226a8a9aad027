"""Find whole stacks that pass on every one of some targets, best first.

Candidates come from the facts, the entries of the matrix and measured runs; cheap conditions order
and thin them out; the evaluation that answers ``check`` has the last word on each. A first pass
skips what published pins and the evaluation of a part of the stack rule out. If it finds nothing,
the last pass skips only stacks that differ from a refused one in no part that the refusing rule
reads, so that nothing is missed within the limit of work.
"""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from compatgate.core.candidates import Candidates
from compatgate.core.evaluate import evaluate
from compatgate.core.facts import Facts
from compatgate.core.matrix import Matrix
from compatgate.core.solve_result import Solution, Solved, list_changes
from compatgate.core.solve_search import Found, Search, rank_found
from compatgate.core.solve_templates import Problem
from compatgate.core.stack import parse_stack
from compatgate.errors import BadInput

MAX_WANTS = 32
MAX_STACKS = 20
MAX_TARGETS = 16
MAX_EVALUATIONS = 1200
"""Evaluations of a stack on a pool, of one question: less than a second of work."""
_LEAD_EVALUATIONS = 200
"""Evaluations for each further want as the one that leads, where there are several targets."""
_MAX_LEADS = 4


def solve(
    problem: Problem,
    *,
    facts: Facts,
    matrix: Matrix,
    now: datetime,
    evaluations: int = MAX_EVALUATIONS,
) -> Solved:
    """Return the stacks that pass on every target, best first, or the nearest misses.

    Fewest changes from ``base`` come first, then stacks than which no other found stack is newer in
    every want, then the newest wanted versions (the first want weighs most), then no warnings, then
    the longest time for which the verdict holds. Over several targets each want leads once, so that
    the answer has the newest of each that runs everywhere.
    """
    _check(problem, facts)
    search = Search(problem, facts, matrix, now, evaluations)
    unknown = search.unknown_wants()
    found = [] if unknown else search.run()
    evaluated = search.evaluated
    for lead in list(problem.wants)[1:_MAX_LEADS] if found and problem.targets[1:] else ():
        other = Search(replace(problem, most=1), facts, matrix, now, _LEAD_EVALUATIONS, lead)
        found += other.run()
        evaluated += other.evaluated
    ranked = rank_found(found)[: problem.most]
    finals = [_finish(one, problem, facts, matrix, now) for one in ranked]
    misses = () if finals else search.nearest_misses()
    return Solved(tuple(finals), tuple(misses), tuple(unknown), evaluated, search.complete)


def _check(problem: Problem, facts: Facts) -> None:
    if not problem.wants:
        hint = 'like {"torch": ">=2.6", "flash-attn": "*"}'
        raise BadInput("must name at least one part", field="want", hint=hint)
    for what, count, most in (
        ("want", len(problem.wants), MAX_WANTS),
        ("targets", len(problem.targets), MAX_TARGETS),
        ("limit", problem.most, MAX_STACKS),
    ):
        if count > most:
            raise BadInput(
                f"too many items: {count}", field=what, value=count, hint=f"at most {most}"
            )
    candidates = Candidates(facts, ())
    if all(candidates.is_without_code(name) for name in problem.wants):
        hint = "any release runs on every target; name a part with GPU code in addition, like torch"
        raise BadInput("names no part with GPU code", field="want", hint=hint)
    for target in problem.targets:
        if not target.pools:
            raise BadInput("has no pools", field="target", value=target.name)


def _finish(
    found: Found, problem: Problem, facts: Facts, matrix: Matrix, now: datetime
) -> Solution:
    """Evaluate a stack as ``check`` does, fixes included, so that the verdicts have equal ids."""
    stack = parse_stack(found.body)
    verdicts = tuple(
        evaluate(stack, target, facts=facts, matrix=matrix, now=now) for target in problem.targets
    )
    changes = list_changes(problem.base, found.body) if problem.base else ()
    builds = tuple(
        name for name, one in found.chosen.items() if "[" in one.text and one.release is None
    )
    return Solution(found.body, verdicts, changes, builds)


__all__ = ["MAX_STACKS", "MAX_TARGETS", "MAX_WANTS", "Problem", "Solved", "solve"]
