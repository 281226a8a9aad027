"""Paths, parameters and schemas of the API stay as others' programs know them.

`openapi/contract.txt` has one line for each operation, parameter, body, response and schema
property. A difference needs a line in `openapi/reviewed.yaml`, which says why. Operation names and
texts are not part of the contract.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from compatgate.web.openapi import describe_api
from compatgate.web.routes import HOOKS, ROUTES, TAGS

HERE = Path(__file__).parent / "openapi"
TEXTS = {"description", "summary", "title", "example", "examples", "operationId"}
NAMED = {"properties", "schemas", "responses", "headers", "content", "patternProperties"}


def without_texts(value: Any, of: str = "") -> Any:
    if isinstance(value, dict):
        kept = {k: v for k, v in value.items() if of in NAMED or k not in TEXTS}
        return {k: without_texts(v, k) for k, v in sorted(kept.items())}
    return [without_texts(one) for one in value] if isinstance(value, list) else value


def line(*parts: str, value: Any) -> str:
    return f"{' '.join(parts)} {json.dumps(without_texts(value, parts[-1]), sort_keys=True)}"


def contract(document: dict[str, Any]) -> Iterator[str]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            where = f"{method.upper()} {path}"
            yield line(where, "security", value=operation.get("security"))
            for one in operation.get("parameters", ()):
                yield line(where, one.get("in", "ref"), one.get("name", ""), value=one)
            if "requestBody" in operation:
                yield line(where, "body", value=operation["requestBody"])
            for status, response in operation["responses"].items():
                yield line(where, status, value=response)
    for kind, members in document["components"].items():
        for name, schema in members.items():
            properties = schema.get("properties", {}) if kind == "schemas" else {}
            rest = {k: v for k, v in schema.items() if k != "properties"}
            yield line(kind, name, value=rest)
            for field, value in properties.items():
                yield line(kind, name, field, value=value)


@pytest.fixture(scope="module")
def lines() -> set[str]:
    return set(contract(describe_api((*ROUTES, *HOOKS), TAGS)))


@pytest.fixture(scope="module")
def agreed() -> set[str]:
    return set((HERE / "contract.txt").read_text().splitlines())


@pytest.fixture(scope="module")
def reviewed() -> dict[str, list[dict[str, str]]]:
    found: dict[str, list[dict[str, str]]] = yaml.safe_load((HERE / "reviewed.yaml").read_text())
    return found


def test_what_was_agreed_is_still_there(
    lines: set[str], agreed: set[str], reviewed: dict[str, list[dict[str, str]]]
) -> None:
    assert agreed - lines == {one["line"] for one in reviewed["removed"]}


def test_what_is_new_was_reviewed(
    lines: set[str], agreed: set[str], reviewed: dict[str, list[dict[str, str]]]
) -> None:
    assert lines - agreed == {one["line"] for one in reviewed["added"]}


def test_every_reviewed_difference_has_a_reason(
    reviewed: dict[str, list[dict[str, str]]],
) -> None:
    assert all(one["why"].strip() for one in (*reviewed["added"], *reviewed["removed"]))


def test_the_contract_covers_every_operation(agreed: set[str]) -> None:
    operations = {one.split(" security ")[0] for one in agreed if " security " in one}
    assert len(operations) > 60
