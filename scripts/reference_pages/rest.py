"""Write the page of the REST operations from the OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

from compatgate.web.openapi import describe_api
from compatgate.web.routes import HOOKS, ROUTES, TAGS

HEAD = """# REST operations

`make docs` writes this page from the OpenAPI document, `/api/v1/openapi.json` of a gate.
[REST](rest.md) explains tokens, errors, lists and changes, with examples. Any operation may also
answer 401 or 403 where its scope is missing, 400 where the request is malformed, and 429 with
`Retry-After` where a limit is reached.

"""
PERMISSIONS = """## Permissions

The scope of each operation, and what it makes of a [token that is limited to
targets](rest.md#tokens-for-some-targets): it *checks* the targets that the request concerns, is
*refused*, or concerns no target (*free*). `admin` is enough everywhere.

| operation | scope | limited token |
|---|---|---|
"""
_LIMITS = {"checked": "checks", "refused": "refused", "free": "free"}
Json = Mapping[str, Any]


def page() -> str:
    """Return the whole page."""
    document = describe_api((*ROUTES, *HOOKS), TAGS)
    parts = [_permissions(), *(_tag(tag, document) for tag in document["tags"])]
    objects = document["components"]["schemas"]
    parts.append("## Objects")
    parts += [_object(name, schema) for name, schema in sorted(objects.items())]
    return HEAD + "\n\n".join(parts) + "\n"


def _permissions() -> str:
    """Return the table of operations and scopes."""
    rows = []
    for route in (*ROUTES, *HOOKS):
        scope = f"`{route.scope}`" if route.scope else "none"
        part = f", or `{route.part}` where nothing is weakened" if route.part else ""
        limit = "refused" if route.scope == "admin" else _LIMITS[route.targets]
        rows.append(
            f"| `{route.method} {route.prefix}{route.template}` | {scope}{part} | {limit} |"
        )
    return PERMISSIONS + "\n".join(rows)


def _tag(tag: Json, document: Json) -> str:
    operations = [
        _operation(method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if tag["name"] in operation["tags"]
    ]
    return "\n\n".join([f"## {tag['name']}", tag["description"], *operations])


def _operation(method: str, path: str, operation: Json) -> str:
    parts = [f"### {method.upper()} {path}", f"{operation['summary']}."]
    if operation.get("description"):
        parts.append(operation["description"])
    facts = [f"- operation: `{operation['operationId']}`"]
    facts += [f"- {_parameter(parameter)}" for parameter in operation.get("parameters", ())]
    facts += [f"- body: {text}" for text in _contents(operation.get("requestBody", {}))]
    for status, answer in operation["responses"].items():
        if status.startswith(("2", "3")):
            body = ", ".join(_contents(answer))
            facts.append(f"- {status}: {answer['description']}{f' ({body})' if body else ''}")
    errors = [
        s for s in operation["responses"] if s >= "400" and s not in ("400", "401", "403", "429")
    ]
    if errors:
        named = ", ".join(f"{s} {HTTPStatus(int(s)).phrase}" for s in errors)
        facts.append(f"- errors: {named}")
    return "\n\n".join([*parts, "\n".join(facts)])


def _parameter(parameter: Json) -> str:
    text = f"{parameter['in']} `{parameter['name']}` ({_type(parameter['schema'])})"
    required = ", required" if parameter.get("required") and parameter["in"] != "path" else ""
    about = parameter.get("description", parameter["name"])
    return f"{text}{required}" if about == parameter["name"] else f"{text}{required}: {about}"


def _contents(body: Json) -> Iterator[str]:
    for kind, content in body.get("content", {}).items():
        yield f"`{kind}` {_type(content.get('schema', {}))}"


def _object(name: str, schema: Json) -> str:
    lines = [
        f"- `{field}` ({_type(of)}{', required' if field in schema.get('required', ()) else ''})"
        + (f": {of['description']}" if of.get("description") else "")
        for field, of in schema.get("properties", {}).items()
    ]
    about = schema.get("description", "")
    return "\n\n".join(part for part in (f"### {name} object", about, "\n".join(lines)) if part)


def _type(schema: Json) -> str:
    """Return a schema in a few words, with links to objects."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()}-object)"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(one) for one in schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return f"object of {_type(schema['additionalProperties'])}"
    kind = schema.get("type", "any")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)
