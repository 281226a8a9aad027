"""Read the question of the solver from its JSON form, and answer it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from compatgate.core.candidates import parse_wants, read_wants
from compatgate.core.components import MAX_NAME_LENGTH, check_count, check_length
from compatgate.core.constraints import Constraint
from compatgate.core.facts import Facts
from compatgate.core.matrix import Matrix
from compatgate.core.performance import near_names
from compatgate.core.request import Target, parse_pool
from compatgate.core.solve import MAX_STACKS, MAX_TARGETS, MAX_WANTS, Problem, solve
from compatgate.core.stack import SPECIAL_KEYS, Stack, parse_stack
from compatgate.errors import BadInput

KEYS = ("target", "targets", "pool", "want", "stack", "from", "limit", "warnings", "labels")
_STATED = ("arch", "needs", "cuda-compat", "cuda-compat-use")


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
        "want": {
            name: (constraint.text if constraint else "*")
            for name, constraint in problem.wants.items()
        },
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
    return Problem(
        wants,
        targets,
        stated=_read_stated(body.get("stack")),
        base=_read_base(body.get("from")),
        most=_read_limit(body.get("limit")),
        warnings=_read_flag(body.get("warnings")),
        labels=_read_labels(body.get("labels")),
    )


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
        raise BadInput(
            "must be text or an object with the wanted parts", field="want", value=stated, hint=hint
        )
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


def _read_base(stated: Any) -> Stack | None:
    if stated is None:
        return None
    if not isinstance(stated, Mapping):
        hint = '{"torch": "2.4.1+cu121", "cuda": "12.1"}'
        raise BadInput("must be a stack", field="from", value=stated, hint=hint)
    return _at("from", lambda: parse_stack(stated))


def _at(field: str, read: Callable[[], Stack]) -> Stack:
    try:
        return read()
    except BadInput as error:
        raise error.at(field) from None


def _read_limit(stated: Any) -> int:
    if stated is None:
        return 5
    if isinstance(stated, bool) or not isinstance(stated, int) or not 1 <= stated <= MAX_STACKS:
        raise BadInput("must be a number of stacks", field="limit", value=stated, hint="1 to 20")
    return stated


def _read_labels(stated: Any) -> frozenset[str] | None:
    if stated is None:
        return None
    if not isinstance(stated, list) or not all(isinstance(one, str) for one in stated):
        hint = '["cu126"], or [] for the builds of the package index alone'
        raise BadInput("must be a list of labels", field="labels", value=stated, hint=hint)
    check_count(len(stated), MAX_WANTS, "labels", "labels")
    return frozenset(stated)


def _read_flag(stated: Any) -> bool:
    if stated is None or isinstance(stated, bool):
        return stated is not False
    raise BadInput("must be true or false", field="warnings", value=stated)
