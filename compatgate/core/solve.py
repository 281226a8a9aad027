"""Find whole stacks that pass on every one of some targets, best first; read the question.

Candidates come from the facts, the entries of the matrix and measured runs; cheap conditions order
and thin them out; the evaluation that answers ``check`` has the last word on each. A first pass
skips what published pins and the evaluation of a part of the stack rule out. If it finds nothing,
the last pass skips only stacks that differ from a refused one in no part that the refusing rule
reads, so that nothing is missed within the limit of work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from compatgate.core.candidates import Candidates, parse_wants, read_wants
from compatgate.core.components import MAX_NAME_LENGTH, check_count, check_length
from compatgate.core.constraints import Constraint
from compatgate.core.evaluate import evaluate
from compatgate.core.facts import Facts
from compatgate.core.matrix import Matrix
from compatgate.core.performance import near_names
from compatgate.core.request import Target, parse_pool
from compatgate.core.solve_result import Solution, Solved, list_changes
from compatgate.core.solve_search import Found, Search, rank_found
from compatgate.core.solve_templates import Problem
from compatgate.core.stack import SPECIAL_KEYS, Stack, parse_stack
from compatgate.errors import BadInput

MAX_WANTS = 32
MAX_STACKS = 20
MAX_TARGETS = 16
MAX_EVALUATIONS = 1200
"""Evaluations of a stack on a pool, of one question: less than a second of work."""
_LEAD_EVALUATIONS = 200
"""Evaluations for each further want as the one that leads, where there are several targets."""
_MAX_LEADS = 4
KEYS = ("target", "targets", "pool", "want", "stack", "from", "limit", "warnings", "labels")
_STATED = ("arch", "needs", "cuda-compat", "cuda-compat-use")


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
            hint = f"at most {most}"
            raise BadInput(f"too many items: {count}", field=what, value=count, hint=hint)
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


def answer_question(
    body: Any,
    find_target: Callable[[str], Target],
    *,
    facts: Facts,
    matrix: Matrix,
    now: datetime,
    described: Sequence[Target] = (),
) -> dict[str, Any]:
    """Answer ``POST /solve``.

    Args:
        body: ``{"target": ..., "want": {"torch": ">=2.6"}, "from": {...}}``; ``targets`` names
            several, ``pool`` describes one pool.
        described: targets that the asker has read; the body then names none.
    """
    problem = read_problem(body, find_target, facts=facts, described=described)
    found = solve(problem, facts=facts, matrix=matrix, now=now)
    return {
        "want": {name: (want.text if want else "*") for name, want in problem.wants.items()},
        "targets": [target.name for target in problem.targets if target.name],
        **found.to_json(),
        "matrix_revision": matrix.revision,
        "facts": facts.digest,
    }


def read_problem(
    body: Any,
    find_target: Callable[[str], Target],
    *,
    facts: Facts,
    described: Sequence[Target] = (),
) -> Problem:
    """Read the question; the arguments are those of `answer_question`."""
    if not isinstance(body, Mapping):
        raise BadInput("the question must be a JSON object", value=body)
    for key in body:
        if key not in KEYS:
            near = near_names(str(key), KEYS)
            hint = f"did you mean {near[0]}?" if near else f"one of {', '.join(KEYS)}"
            raise BadInput("unknown key", field=str(key), hint=hint)
    wants = _read_wants(body.get("want"))
    targets = tuple(described) or _read_targets(body, find_target, facts)
    stated, base = _read_stated(body.get("stack")), body.get("from")
    if base is not None and not isinstance(base, Mapping):
        hint = '{"torch": "2.4.1+cu121", "cuda": "12.1"}'
        raise BadInput("must be a stack", field="from", value=base, hint=hint)
    start = None if base is None else _at("from", lambda: parse_stack(base))
    most, warnings = body.get("limit"), body.get("warnings")
    if most is None:
        most = 5
    if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= MAX_STACKS:
        raise BadInput("must be a number of stacks", field="limit", value=most, hint="1 to 20")
    if not (warnings is None or isinstance(warnings, bool)):
        raise BadInput("must be true or false", field="warnings", value=warnings)
    labels = _read_labels(body.get("labels"))
    return Problem(wants, targets, stated, start, most, warnings is not False, labels)


def _read_wants(stated: Any) -> dict[str, Constraint | None]:
    hint = '{"torch": ">=2.6", "flash-attn": "*"} or ["torch>=2.6", "flash-attn"]'
    if isinstance(stated, Mapping):
        check_count(len(stated), MAX_WANTS, "parts", "want")
        for name, text in stated.items():
            if not isinstance(name, str) or not isinstance(text, str):
                raise BadInput("must be text", field=f"want.{name}", value=text, hint=hint)
            check_length(text, MAX_NAME_LENGTH, f"want.{name}")
        return read_wants(stated)
    texts = [stated] if isinstance(stated, str) else stated
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        what = "must be text or an object with the wanted parts"
        raise BadInput(what, field="want", value=stated, hint=hint)
    check_count(len(texts), MAX_WANTS, "parts", "want")
    for text in texts:
        check_length(text, MAX_WANTS * MAX_NAME_LENGTH, "want")
    return parse_wants(texts)


def _read_targets(
    body: Mapping[str, Any], find_target: Callable[[str], Target], facts: Facts
) -> tuple[Target, ...]:
    given = [key for key in ("target", "targets", "pool") if body.get(key) is not None]
    if len(given) != 1:
        hint = '"target": "prod-a100", or "pool": {"driver": "535.104.05", "gpu": "L4"}'
        raise BadInput("name either targets or a pool", field="target", hint=hint)
    key, value = given[0], body[given[0]]
    if key == "pool":
        return (Target("", (parse_pool(value, facts.gpus),)),)
    names = [value] if key == "target" else value
    if not isinstance(names, list) or not names:
        raise BadInput("must be a list of names", field=key, value=value)
    check_count(len(names), MAX_TARGETS, "targets", key)
    for name in names:
        if not isinstance(name, str) or not name:
            raise BadInput("must be the name of a target", field=key, value=name)
        check_length(name, MAX_NAME_LENGTH, key)
    return tuple(find_target(name) for name in dict.fromkeys(names))


def _read_stated(stated: Any) -> dict[str, Any]:
    """Read what stacks have in addition to versions: GPU code, and what the workload needs."""
    if stated is None:
        return {}
    if not isinstance(stated, Mapping):
        raise BadInput("must be an object", field="stack", value=stated)
    for key in stated:
        if key not in SPECIAL_KEYS or key not in _STATED:
            hint = f'state a version as "want": {{"{key}": "==..."}}'
            hint = hint if key not in SPECIAL_KEYS else f"one of {', '.join(_STATED)}"
            raise BadInput("cannot be set here", field=f"stack.{key}", hint=hint)
    if stated:
        _at("stack", lambda: parse_stack({"cuda": "12.0", **stated}))
    return dict(stated)


def _at(field: str, read: Callable[[], Stack]) -> Stack:
    try:
        return read()
    except BadInput as error:
        raise error.at(field) from None


def _read_labels(stated: Any) -> frozenset[str] | None:
    if stated is None:
        return None
    if not isinstance(stated, list) or not all(isinstance(one, str) for one in stated):
        hint = '["cu126"], or [] for the builds of the package index alone'
        raise BadInput("must be a list of labels", field="labels", value=stated, hint=hint)
    check_count(len(stated), MAX_WANTS, "labels", "labels")
    return frozenset(stated)
