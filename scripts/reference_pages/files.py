"""Write the page of the file formats from their JSON Schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

SCHEMAS = Path(__file__).parents[2] / "matrix" / "schema"
HEAD = """# Files

`make docs` writes this page from the JSON Schemas in `matrix/schema`. Each section is one schema.
`[]` stands for each item of a list, `*` for each name of a table. What a field does not allow is an
error with file, line and path.

"""
FACTS = """## Facts

Each subject of `matrix/facts` has a schema in `matrix/schema/facts`. [Facts](facts.md) explains the
formats.

"""
Json = Mapping[str, Any]


def page() -> str:
    """Return the whole page."""
    parts = [_file(path) for path in sorted(SCHEMAS.glob("*.json"))]
    facts = "\n".join(
        f"- `{path.name}`: {_read(path).get('title', '')}"
        for path in sorted((SCHEMAS / "facts").glob("*.json"))
    )
    return HEAD + "\n\n".join(parts) + "\n\n" + FACTS + facts + "\n"


def _read(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def _file(path: Path) -> str:
    schema = _read(path)
    name = path.name.removesuffix(".schema.json")
    head = f"## {name.replace('-', ' ').capitalize()}\n\n{schema['title']}. Schema: `{path.name}`."
    return head + "\n\n" + "\n".join(dict.fromkeys(_fields(schema, schema, "")))


def _fields(schema: Json, root: Json, prefix: str) -> Iterator[str]:
    """Yield a line for each field, in the order of the schema."""
    for one in _alternatives(schema, root):
        required = one.get("required", ())
        for name, of in one.get("properties", {}).items():
            yield from _field(f"{prefix}{name}", of, root, required=name in required)
        more = one.get("additionalProperties")
        if isinstance(more, Mapping):
            yield from _field(f"{prefix}*", more, root, required=False)


def _field(path: str, schema: Json, root: Json, *, required: bool) -> Iterator[str]:
    known = _resolve(schema, root)
    about = schema.get("description") or known.get("description") or ""
    notes = [_type(known, root)]
    if required:
        notes.append("required")
    if "default" in known:
        notes.append(f"default `{json.dumps(known['default'])}`")
    yield f"- `{path}` ({', '.join(notes)})" + (f": {about}" if about else "")
    yield from _fields(known, root, f"{path}.")
    for one in _alternatives(known, root):
        items = one.get("items")
        if isinstance(items, Mapping):
            yield from _fields(_resolve(items, root), root, f"{path}[].")


def _alternatives(schema: Json, root: Json) -> Iterator[Json]:
    yield schema
    for key in ("anyOf", "oneOf", "allOf", "then", "else"):
        named = schema.get(key, ())
        for one in [named] if isinstance(named, Mapping) else named:
            yield from _alternatives(_resolve(one, root), root)


def _resolve(schema: Json, root: Json) -> Json:
    """Return the schema that a reference within the file names."""
    reference = schema.get("$ref", "")
    if not reference.startswith("#/"):
        return schema
    found: Any = root
    for part in reference[2:].split("/"):
        found = found[part]
    return _resolve(found, root)


def _type(schema: Json, root: Json) -> str:
    schema = _resolve(schema, root)
    if "enum" in schema:
        return " or ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(_type(one, root) for one in schema[key]))
    kind = schema.get("type", "any")
    if kind == "array":
        items = schema.get("items")
        return f"list of {_type(items, root)}" if isinstance(items, Mapping) else "list"
    return " or ".join(kind) if isinstance(kind, list) else str(kind)
