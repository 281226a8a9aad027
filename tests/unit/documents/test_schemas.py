"""The JSON Schemas and the typed structs accept the same documents."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from compatgate.documents import specs, validation

GOOD: dict[str, dict[str, Any]] = {
    "Target": {
        "apiVersion": "compatgate.dev/v1",
        "kind": "Target",
        "metadata": {
            "name": "prod",
            "labels": {"tier": "prod"},
            "owner": "team-ml",
            "links": {"runbook": "https://wiki.example/r?a=b#c"},
        },
        "spec": {
            "pools": [
                {"name": "a", "gpu": "L4", "driver": "535.183.01", "os": "linux", "count": 2}
            ],
            "match": {"namespaces": ["ml-*"], "nodeLabels": {"a/b": "c"}},
            "policy": {
                "mode": "warn",
                "requireEntry": True,
                "canary": {"require": True, "maxAge": "30d", "suites": ["smoke"]},
                "onUnknown": "allow",
                "packages": "audit",
                "entries": "strict",
            },
        },
    },
    "Entry": {
        "apiVersion": "compatgate.dev/v1",
        "kind": "Entry",
        "metadata": {
            "name": "e",
            "labels": {"a/b": "c"},
            "owner": "team-ml",
            "links": {"runs": "http://x.example/"},
        },
        "spec": {
            "targets": ["*", "prod"],
            "components": {"cuda": "12.4.*"},
            "status": "deprecated",
            "reason": "two\nlines",
            "gpus": ["L4"],
            "replacement": "other",
            "needs": ["fp8", "60GiB"],
        },
    },
    "Waiver": {
        "apiVersion": "compatgate.dev/v1",
        "kind": "Waiver",
        "metadata": {"name": "w"},
        "spec": {
            "rules": ["CG803"],
            "targets": ["prod"],
            "match": {"image": "x/*", "components": {"torch": "2.*"}},
            "owner": "me",
            "reason": "because",
            "expires": "2027-01-31",
        },
    },
}

_junk = st.sampled_from(
    [None, True, 0, -1, 1.5, 2**40, "", " ", "x", "a\n", "a\0b", "*", "é", "30d", "0d", "CG101",
     "2027-01-31", "x" * 600, [], ["x"], ["*", "*"], [1], {}, {"x": "y"}, {"name": "x"}]
).map(copy.deepcopy)  # fmt: skip


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value)
    if isinstance(value, dict | list):
        for key, item in items:
            found += (
                _places(item, (*path, key)) if isinstance(item, dict | list) else [(*path, key)]
            )
    return found


@st.composite
def _mutants(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    kind = draw(st.sampled_from(sorted(GOOD)))
    body = copy.deepcopy(GOOD[kind])
    for _ in range(draw(st.integers(0, 3))):
        path = draw(st.sampled_from(_places(body)))
        place: Any = body
        for step in path[:-1]:
            place = place[step]
        action = draw(st.sampled_from(["replace", "remove", "add"]))
        if action == "replace":
            place[path[-1]] = draw(_junk)
        elif action == "remove":
            del place[path[-1]]
        elif isinstance(place, dict):
            place[draw(st.sampled_from(["extra", "reason", "count", "os", "match"]))] = draw(_junk)
        if not _places(body):
            break
    return kind, body


@given(_mutants())
def test_a_struct_accepts_exactly_what_its_schema_accepts(
    mutant: tuple[str, dict[str, Any]],
) -> None:
    kind, body = mutant
    assume("kind" in body)  # which chooses the struct, and whose absence the reader reports
    by_schema = Draft202012Validator(validation.load_schema(kind)).is_valid(body)
    try:
        msgspec.convert(body, specs.TYPES[kind])
    except msgspec.ValidationError:
        by_struct = False
    else:
        by_struct = True
    assert by_struct == by_schema, body


@pytest.mark.parametrize("kind", sorted(GOOD))
def test_the_schemas_are_valid_and_say_what_everything_is(kind: str) -> None:
    schema = validation.load_schema(kind)
    Draft202012Validator.check_schema(schema)
    assert schema["$id"].endswith(f"/v1/{kind.lower()}.schema.json")
    assert Draft202012Validator(schema).is_valid(GOOD[kind])


@pytest.mark.parametrize("kind", sorted(GOOD))
def test_a_document_that_is_decoded_and_encoded_says_the_same(kind: str) -> None:
    document = msgspec.convert(GOOD[kind], specs.TYPES[kind])
    again = specs.decode(kind, specs.encode(document))
    assert again == document
    assert specs.to_body(again) == specs.to_body(document)


def test_the_defaults_in_the_schema_are_those_of_the_structs() -> None:
    policy = validation.load_schema("Target")["properties"]["spec"]["properties"]["policy"][
        "properties"
    ]
    spec = specs.PolicySpec()
    assert policy["mode"]["default"] == spec.mode
    assert policy["requireEntry"]["default"] == spec.require_entry
    assert policy["onUnknown"]["default"] == spec.on_unknown
    assert policy["packages"]["default"] == spec.packages
    assert policy["entries"]["default"] == spec.entries
    assert policy["canary"]["properties"]["maxAge"]["default"] == spec.canary.max_age
    assert tuple(policy["canary"]["properties"]["suites"]["default"]) == spec.canary.suites
