"""A first draft of the method that the client lacks for an operation of the API."""

from __future__ import annotations

from keyword import iskeyword
from typing import Any

_TYPES = {"integer": "int", "boolean": "bool", "number": "float"}


def draft(method: str, path: str, operation: dict[str, Any]) -> str:
    """Source of a function for ``compatgate/client/operations``; types are to be completed."""
    name, parameters = operation["operationId"], operation["parameters"]
    takes = [f"{p['name']}: {_type(p)}" for p in parameters if p["in"] == "path"]
    passed = [p["name"] for p in parameters if p["in"] in ("path", "query")]
    paged = {"limit", "cursor"} <= set(passed)
    passed = [p for p in passed if not (paged and p in ("limit", "cursor"))]
    if "requestBody" in operation:
        takes.append("body: Mapping[str, Any]")
    queries = [p for p in parameters if p["in"] == "query" and p["name"] in passed]
    if queries:
        takes += ["*", *(f"{_python(p['name'])}: {_type(p)} | None = None" for p in queries)]
    answer = _answer(operation)
    kind, how = ("Listing", "pages") if paged else ("Operation", method.lower())
    given = [f'"{path.removeprefix("/api/v1")}"', answer]
    if "requestBody" in operation:
        given.append(f"body=body, reads={_body(operation)}")
    given += [f"{p}={p}" if not iskeyword(p) else f'**{{"{p}": {_python(p)}}}' for p in passed]
    made = f"Page[{answer}]" if paged else answer
    return (
        f"# {method} {path}\n@{kind}\ndef {name}({', '.join(takes)}) -> Request[{made}]:\n"
        f'    """{operation["summary"]}."""\n    return {how}({", ".join(given)})\n'
    )


def _python(name: str) -> str:
    return f"{name}_" if iskeyword(name) else name


def _type(parameter: dict[str, Any]) -> str:
    schema = parameter["schema"]
    kind = schema.get("type", schema.get("anyOf", [{}])[0].get("type", "string"))
    return "Moment" if "anyOf" in schema else _TYPES.get(kind, "str")


def _answer(operation: dict[str, Any]) -> str:
    (answer,) = [r for s, r in operation["responses"].items() if s.startswith("2")]
    media, content = next(iter(answer.get("content", {"": {}}).items()))
    if not media.endswith("json"):
        return "str"
    return _named(content["schema"]).removesuffix("Page")


def _body(operation: dict[str, Any]) -> str:
    return _named(next(iter(operation["requestBody"]["content"].values()))["schema"])


def _named(schema: dict[str, Any]) -> str:
    return str(schema.get("$ref", "/Any")).rpartition("/")[2]
