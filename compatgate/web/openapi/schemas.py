"""JSON Schemas of the types that routes declare, as components."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from compatgate.web.route import Route
from compatgate.wire.facts import Problem
from compatgate.wire.matrix import Page

_REF = "#/components/schemas/{name}"


class Schemas:
    """Every type that routes read or answer, and what refers to it."""

    def __init__(self, routes: Iterable[Route]) -> None:
        types: list[Any] = [Problem]
        for route in routes:
            types.append(answer_type(route))
            types += [route.body.model] if route.body else []
        self._types = list({repr(kind): kind for kind in types}.values())
        made = msgspec.json.schema_components(self._types, ref_template=_REF)
        schemas, components = _as_json(made)
        self._schemas = schemas
        self.components = {_plain(name): _renamed(body) for name, body in components.items()}

    def of(self, kind: Any) -> dict[str, Any]:
        """The schema of a type: for most a reference."""
        schema: dict[str, Any] = _renamed(self._schemas[self._types.index(kind)])
        return schema


def answer_type(route: Route) -> Any:
    """The type of a route's answer; a page of it where the route answers pages."""
    model: Any = route.returns.model
    page: Any = Page
    return page[model] if route.returns.paged else model


def parameter_schema(kind: Any) -> dict[str, Any]:
    """The schema of one parameter."""
    schema: dict[str, Any] = _as_json(msgspec.json.schema(kind))
    return schema


def _as_json(value: Any) -> Any:
    """Defaults are objects of their types; in the description they are JSON."""
    return msgspec.json.decode(msgspec.json.encode(value))


def _plain(name: str) -> str:
    """``Page_TargetBody_`` is ``TargetPage``, and ``TargetBody`` is ``Target``."""
    if name.startswith("Page_"):
        return f"{name.removeprefix('Page_').rstrip('_').removesuffix('Body')}Page"
    return name.removesuffix("Body")


def _renamed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_renamed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    prefix = _REF.format(name="")
    return {
        key: prefix + _plain(value.removeprefix(prefix)) if key == "$ref" else _renamed(value)
        for key, value in schema.items()
    }
