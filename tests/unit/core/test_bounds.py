"""How much a question may hold: what is beyond is refused with field, number and the most."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

import pytest

from compatgate.core.components import (
    MAX_ALTERNATIVES,
    MAX_ARCHITECTURES,
    MAX_IMAGE_LENGTH,
    MAX_KEYS,
    MAX_NAME_LENGTH,
    MAX_REMARKS,
    MAX_REQUIRE_LENGTH,
    resolve_component,
)
from compatgate.core.facts.nvidia import Gpus
from compatgate.core.request import parse_request
from compatgate.core.rule import Verdict
from compatgate.discovery.stated_stack import attach_remarks
from compatgate.errors import BadInput

POOL = {"driver": "535.104.05", "gpu": "A100-SXM4-80GB"}
STACK = {"cuda": "12.4"}


def _keys(count: int) -> dict[str, str]:
    return {f"component-{number:06}": "1" for number in range(count)}


def _stack(**more: Any) -> dict[str, Any]:
    return {"pool": POOL, "stack": {**STACK, **more}}


TOO_MUCH: list[tuple[dict[str, Any], str, int, int]] = [
    (_stack(require="driver>=1 " * 2000), "stack.require", 2000, MAX_ALTERNATIVES),
    (_stack(require=["driver>=1"] * 2000), "stack.require", 2000, MAX_ALTERNATIVES),
    (_stack(require=["driver>=1," * 1000]), "stack.require", 10_000, MAX_REQUIRE_LENGTH),
    (_stack(**_keys(2000)), "stack", 2001, MAX_KEYS),
    (_stack(arch=["sm_80"] * 2000), "stack.arch", 2000, MAX_ARCHITECTURES),
    (_stack(arch="sm_80+" * 2000), "stack.arch", 2000, MAX_ARCHITECTURES),
    (_stack(arch=["s" * 10_000]), "stack.arch", 10_000, MAX_NAME_LENGTH),
    *(
        (_stack(**{name: ["said"] * 2000}), f"stack.{name}", 2000, MAX_REMARKS)
        for name in ("open", "conflicts", "unread")
    ),
    (_stack(torch="1." * 5000 + "1"), "stack.torch", 10_001, 256),
    (_stack(**{"c" * 10_000: "1"}), f"stack.{'c' * 40}...", 10_000, MAX_NAME_LENGTH),
    ({**_stack(), "set": _keys(2000)}, "set", 2000, MAX_KEYS),
    ({**_stack(), "set": dict.fromkeys(_keys(2000))}, "set", 2000, MAX_KEYS),
    ({**_stack(), "set": {"driver": "1" * 9999}}, "set.driver", 9999, MAX_NAME_LENGTH),
    ({"pool": {**POOL, "gpu": "A" * 9999}, "stack": STACK}, "pool.gpu", 9999, MAX_NAME_LENGTH),
    ({"pool": {**POOL, "name": "A" * 9999}, "stack": STACK}, "pool.name", 9999, MAX_NAME_LENGTH),
    ({"target": "t" * 9999, "stack": STACK}, "target", 9999, MAX_NAME_LENGTH),
    ({**_stack(), "image": "i" * 9999}, "image", 9999, MAX_IMAGE_LENGTH),
]


@pytest.mark.parametrize(
    ("body", "field", "count", "most"), TOO_MUCH, ids=[f"{one[1]}-{one[2]}" for one in TOO_MUCH]
)
def test_what_is_beyond_a_bound_is_named_with_its_number_and_the_most(
    body: dict[str, Any], field: str, count: int, most: int, gpus: Gpus
) -> None:
    with pytest.raises(BadInput) as caught:
        parse_request(body, gpus)
    error = caught.value
    assert error.field == field
    assert str(count) in error.problem
    assert error.hint == f"at most {most}"
    assert len(error.detail) < 300


def test_the_largest_real_requirement_is_far_within_the_bounds(gpus: Gpus) -> None:
    brands, branches = ("tesla", "quadro", "grid", "titan"), range(450, 459)
    pairs = [(brand, branch) for branch in branches for brand in brands]
    clauses = [f"brand={brand},driver>={at},driver<{at + 1}" for brand, at in pairs]
    stack = parse_request(_stack(require=[" ".join(["cuda>=12.4", *clauses])]), gpus).stack
    assert len(stack.require[0].split()) == 37


@pytest.mark.parametrize("part", ["stack", "set"])
def test_names_that_nobody_knows_are_packages_and_cost_no_search(
    part: str, gpus: Gpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question with as many as are allowed is read; near names are not sought for any."""
    monkeypatch.setattr(difflib, "get_close_matches", None)
    unknown = dict.fromkeys(_keys(MAX_KEYS - 1), "1")
    stack = parse_request({"pool": POOL, "stack": STACK, part: unknown}, gpus).stack
    assert len(stack.packages) == MAX_KEYS - 1


def test_a_name_that_is_nearly_right_still_has_its_hint() -> None:
    with pytest.raises(BadInput) as caught:
        resolve_component("cuddnn")
    assert "cudnn" in caught.value.hint


def test_requirements_of_an_image_that_are_too_many_leave_it_unknown_by_name(
    ask: Callable[..., Verdict],
) -> None:
    shown = attach_remarks({"cuda": "12.1", "require": ["driver>=1 " * 2000]}, (), ())
    assert "require" not in shown
    verdict = ask(POOL, {**shown, "arch": ["sm_80"]})
    assert verdict.verdict == "unknown"
    (said,) = [f.message for f in verdict.findings if f.rule == "CG901"]
    assert said == "left open: require: too many alternatives: 2000 (at most 256)"


def test_sentences_of_a_witness_beyond_the_bound_are_counted_and_stay_open(gpus: Gpus) -> None:
    body = attach_remarks(STACK, [f"part {number} is open" for number in range(5000)], ())
    stack = parse_request({"pool": POOL, "stack": body}, gpus).stack
    assert len(stack.open) == MAX_REMARKS // 2
    assert stack.open[-1] == "4501 more of this kind"
