"""Read objects of other projects' tools from YAML or JSON: bounded, with scalars as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from compatgate.errors import BadInput
from compatgate.strict_json import NOT_JSON

Body = dict[str, Any]
LARGEST = 32 * 1024 * 1024
"""Bytes of the largest accepted YAML file; snapshots of large clusters reach some MB."""
_HINT = (
    "give an AICR snapshot or recipe, ClusterPolicy and NVIDIADriver objects, or nodes, as"
    " kubectl get -o yaml or -o json prints them"
)


def read_objects(text: str, origin: str) -> tuple[Body, ...]:
    """Return the objects of a text; each item of a list is one object.

    Args:
        text: YAML (several documents too) or JSON.
        origin: name of the text in errors.

    Raises:
        BadInput: the text is empty, neither YAML nor JSON, or holds other values than objects.
    """
    clean = text.lstrip("\ufeff").strip()
    if not clean:
        raise BadInput("is empty", field=origin, hint=_HINT)
    documents = [_json(clean, origin)] if clean.startswith(("{", "[")) else _yaml(clean, origin)
    found = tuple(one for document in documents for one in _flat(document, origin))
    if not found:
        raise BadInput("holds no objects", field=origin, hint=_HINT)
    return found


def _json(text: str, origin: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except NOT_JSON as error:
        raise BadInput(f"is not JSON: {error}", field=origin, hint=_HINT) from None


def _yaml(text: str, origin: str) -> list[Any]:
    import yaml

    if len(text) > LARGEST:
        raise BadInput("is too long for YAML", field=origin, hint="give JSON")
    loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        _check_shape(yaml, text, loader)
        # Keep every value as text: the driver 550.10 is not the number 550.1.
        return list(yaml.load_all(text, Loader=loader))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        where = " ".join(str(error).split())[:200]
        raise BadInput(f"is not YAML: {where}", field=origin, hint=_HINT) from None


def _check_shape(yaml: Any, text: str, loader: Any) -> None:
    """Refuse deep nesting and aliases before the objects are built.

    Raises:
        ValueError: the text is nested too deeply, or has aliases, which these tools never write.
    """
    depth = 0
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.AliasEvent):
            raise ValueError("aliases are not supported")
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > 64:
            raise ValueError("nested too deeply")


def _flat(document: Any, origin: str) -> Iterator[Body]:
    if document in (None, ""):
        return
    if isinstance(document, list):
        for item in document:
            yield from _flat(item, origin)
        return
    if not isinstance(document, dict):
        raise BadInput("is not an object", field=origin, hint=_HINT)
    if str(document.get("kind", "")).endswith("List") and isinstance(document.get("items"), list):
        for item in document["items"]:
            yield from _flat(item, origin)
        return
    yield document


def part(body: Any, *path: str) -> Body:
    """Return a nested object; empty where the value is missing or no object."""
    for name in path:
        body = body.get(name) if isinstance(body, Mapping) else None
    return dict(body) if isinstance(body, Mapping) else {}


def text_of(value: Any) -> str:
    """Return a scalar as text; empty for other values."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value).strip() if isinstance(value, (str, int, float)) else ""


def is_true(value: Any, *, default: bool = False) -> bool:
    """Return a flag that is written as a boolean or as text."""
    text = text_of(value).lower()
    return default if text in ("", "null", "~") else text == "true"


def items(body: Any, name: str) -> list[Body]:
    """Return a list of objects without its other items."""
    value = body.get(name) if isinstance(body, Mapping) else None
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
