"""Read the JSON Schemas of the fact files and explain their errors."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from compatgate import resources
from compatgate.catalog.sources import form

Schema = dict[str, Any]


def directory() -> str:
    """Return the folder of the schemas."""
    return os.path.join(resources.locate("matrix"), "schema", "facts")


@lru_cache(maxsize=64)
def read_schema(source: str) -> Schema:
    """Return the schema of a fact file; the files of a folder share one."""
    path = os.path.join(directory(), f"{form(source)}.schema.json")
    with open(path, encoding="utf-8") as file:
        schema: Schema = json.load(file)
    return schema


def natural_key(schema: Schema) -> tuple[str, ...]:
    """Return the fields that identify a record of a list; empty where the list is one value."""
    for choice in (schema, *schema.get("anyOf", ())):
        if key := choice.get("x-key"):
            return tuple(key)
    return ()


def of_items(schema: Schema) -> Schema:
    """Return the schema of a list's records."""
    for choice in (schema, *schema.get("anyOf", ())):
        if isinstance(items := choice.get("items"), dict):
            return items
    return {}


def of_property(schema: Schema, name: str) -> Schema:
    """Return the schema of a field; empty without one."""
    for choice in (schema, *schema.get("anyOf", ())):
        if isinstance(found := choice.get("properties", {}).get(name), dict):
            return found
    return {}


def errors(source: str, document: Any, *, partial: bool = False) -> Iterator[tuple[str, Any, str]]:
    """Yield schema errors: path, value and reason.

    Args:
        source: name of the fact file.
        document: parsed content.
        partial: accept missing sections.
    """
    from jsonschema import Draft202012Validator
    from referencing import Registry, Resource

    schema = _partial(read_schema(source)) if partial else read_schema(source)
    common = Resource.from_contents(read_schema("common"))
    registry: Any = Registry().with_resource("common.schema.json", common)
    validator = Draft202012Validator(schema, registry=registry)
    for error in validator.iter_errors(document):
        yield place(document, list(error.absolute_path), schema), error.instance, _reason(error)


def _partial(schema: Schema) -> Schema:
    """Return the schema without required sections and minimum lengths."""
    sections = {
        name: {rule: value for rule, value in section.items() if rule != "minItems"}
        for name, section in schema["properties"].items()
    }
    return {**schema, "required": [], "properties": sections}


def place(document: Any, path: list[Any], schema: Schema) -> str:
    """Return a path with natural keys instead of positions: ``releases[cuda=12.4.1].driver``."""
    text = ""
    node, described = document, schema
    for step in path:
        if isinstance(step, int):
            record = node[step]
            text += f"[{label(record, natural_key(described)) or step}]"
            described = of_items(described)
        else:
            text += f".{step}" if text else str(step)
            described = of_property(described, str(step))
        node = node[step]
    return text


def label(record: Any, key: tuple[str, ...]) -> str:
    """Return the name of a record, ``cuda=12.4.1``; empty without a key."""
    if not isinstance(record, dict):
        return ""
    return ",".join(f"{field}={record[field]}" for field in key if field in record)


def _reason(error: Any) -> str:
    """Explain an error in the schema's own words, where it has any."""
    if error.validator == "anyOf" and error.context:
        return _reason(max(error.context, key=lambda e: (e.validator == "pattern", -len(e.path))))
    if error.validator == "enum":
        return f"{error.instance!r} is not one of {', '.join(map(str, error.validator_value))}"
    wanted = error.schema.get("description") if isinstance(error.schema, dict) else None
    if isinstance(error.instance, (int, float)) and error.validator == "type":
        return f"{error.instance!r} is a number in YAML; quote the text (12.10 becomes 12.1)"
    if wanted and error.validator in ("pattern", "type"):
        return f"{error.instance!r} is not {wanted}"
    message: str = error.message
    return message if len(message) < 200 else f"{message[:200]}..."
