"""An inspected stack as CycloneDX: valid, and the same stack when it is read again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from compatgate.discovery.findings import Inspection
from compatgate.discovery.observations import Conflict, Observation, settle
from compatgate.discovery.sbom.formats import to_cyclonedx
from compatgate.errors import BadInput

STACK = {
    "cuda": "12.4",
    "cudnn": "9.1.0.70+cu12",
    "nccl": "2.21.5+cuda12.4",
    "python": "3.11.9",
    "torch": "2.4.1+cu124",
    "vllm": "0.5.1",
}
SEEN = tuple(Observation(name, version, f"site-packages/{name}") for name, version in STACK.items())


def validated(what: str, inspection: Inspection) -> str:
    text = json.dumps(to_cyclonedx(what, inspection))
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    return text


@pytest.mark.parametrize("what", ["registry.example/team/app:1.2", "torch", "./pytorch", "a\udc80"])
def test_it_is_valid_and_reads_back_as_the_same_stack(read: Any, what: str) -> None:
    text = validated(what, Inspection(dict(STACK), SEEN))
    reading = read("bom.json", text)
    assert settle(reading.observations)[0] == STACK
    assert reading.open == ()
    assert reading.rest == {}


def test_each_component_says_where_it_was_seen_and_what_it_is() -> None:
    document = to_cyclonedx("app", Inspection(dict(STACK), SEEN))
    torch = next(c for c in document["components"] if c["name"] == "torch")
    assert torch["purl"] == "pkg:pypi/torch@2.4.1%2Bcu124"
    assert torch["type"] == "framework"
    assert torch["evidence"] == {"occurrences": [{"location": "site-packages/torch"}]}


def test_what_is_no_component_reads_back_as_well(read: Any) -> None:
    rest = {
        "arch": ["sm_80", "compute_90"],
        "cuda-compat": "12.4",
        "cuda-compat-use": "always",
        "require": ["cuda>=12.4"],
        "tritonserver": "2.46.0",
    }
    conflict = Conflict("cudnn", "two witnesses disagree", "9.1.0")
    found = Inspection({**STACK, **rest}, SEEN, (conflict,), ("a layer could not be read",))
    reading = read("bom.json", validated("app", found))
    assert reading.rest == {**rest, "conflicts": ["two witnesses disagree"]}
    assert reading.open == ("a layer could not be read",)


def test_a_build_by_conda_stays_one(read: Any) -> None:
    stack = {"torch": "2.5.1+conda.cu126"}
    reading = read("bom.json", validated("app", Inspection(stack)))
    assert settle(reading.observations)[0] == stack


def test_the_same_inspection_gives_the_same_document() -> None:
    assert to_cyclonedx("a", Inspection(dict(STACK))) == to_cyclonedx("a", Inspection(dict(STACK)))


def test_nothing_found_is_valid_and_no_stack(read: Any) -> None:
    reading = read("bom.json", validated("app", Inspection({})))
    assert reading.observations == ()
    assert reading.open


@pytest.mark.parametrize(
    "value", ["", "[]", "{", '{"arch": "sm_80"}', '{"cuda": ["1"]}', '{"open": [1]}', '{"x": "y"}']
)
def test_a_property_that_says_something_else_is_refused(read: Any, value: str) -> None:
    document = to_cyclonedx("app", Inspection(dict(STACK)))
    document["properties"] = [{"name": "compatgate:stack", "value": value}]
    with pytest.raises(BadInput, match="has a malformed property"):
        read("bom.json", json.dumps(document))
