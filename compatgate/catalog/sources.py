"""Find, hash and parse the fact files, read their schemas and explain schema errors."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

from compatgate import resources
from compatgate.core.performance import sha256
from compatgate.errors import CatalogError, quote_error

SUFFIX = ".yaml"
FOLDERS = {"frameworks": "framework", "packages": "packages"}
"""Folders of fact files with a common format, mapped to its schema, adapter and kind of table."""
NOT_FACTS = frozenset({"exceptions"})  # files in the folder of facts that configure checks

ROOT = "COMPATGATE_FACTS_ROOT"
"""Variable that names a folder of facts to use instead of the shipped one. For tests, whose answers
must not change with every added release; operators use overlays."""

_REPLACEMENT: ContextVar[str | None] = ContextVar("rooted", default=None)


def replacement_root() -> str | None:
    """Return the folder that replaces the shipped facts (and compiled tables), if any."""
    return _REPLACEMENT.get() or os.environ.get(ROOT) or None


@contextmanager
def replace_root(folder: str) -> Iterator[None]:
    """Use another whole folder of facts, such as that of another release, inside the block."""
    token = _REPLACEMENT.set(folder)
    try:
        yield
    finally:
        _REPLACEMENT.reset(token)


def facts_dir() -> str:
    """Return the directory of the shipped fact files."""
    return replacement_root() or os.path.join(resources.locate("matrix"), "facts")


def source_path(name: str) -> str:
    """Return the path of a shipped fact file (``nccl``, ``frameworks/torch``)."""
    return os.path.join(facts_dir(), *name.split("/")) + SUFFIX


def paths() -> dict[str, str]:
    """Return the paths of the shipped fact files by name."""
    folder = facts_dir()
    return {name: os.path.join(folder, name) + SUFFIX for name in names()}


def names() -> tuple[str, ...]:
    """Return the names of the shipped fact files: ``nccl``, ``frameworks/torch``."""
    found = [stem for stem in _stems("") if stem not in NOT_FACTS]
    for folder in FOLDERS:
        found += [f"{folder}/{stem}" for stem in _stems(folder)]
    return tuple(sorted(found))


def _stems(folder: str) -> list[str]:
    try:
        found = os.listdir(os.path.join(facts_dir(), folder))
    except FileNotFoundError:
        return []
    return [n.removesuffix(SUFFIX) for n in found if n.endswith(SUFFIX) and n[0] != "."]


def is_shipped(name: str) -> bool:
    """Tell whether a fact file is shipped, not only in an overlay."""
    return os.path.exists(source_path(name))


def format_of(name: str) -> str:
    """Return the format of a fact file, which names its schema: the folder's, else its own."""
    folder, _, rest = name.rpartition("/")
    return FOLDERS[folder] if folder else rest


def title(name: str) -> str:
    """Return the short name of a fact file: ``torch`` for ``frameworks/torch``."""
    return name.rpartition("/")[2]


def read_bytes(path: str) -> bytes:
    """Return the content of a fact file."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        what = f"cannot read the file: {error.strerror}"
        raise CatalogError(what, field=path, value=path) from error


def file_digest(path: str) -> str:
    """Return the SHA-256 of a file's content."""
    return sha256(read_bytes(path))


@lru_cache(maxsize=1)
def _loader() -> type[Any]:
    """Return the C SafeLoader, changed to read dates as text like any version."""
    import yaml

    class Loader(yaml.CSafeLoader):
        yaml_implicit_resolvers = {
            first: [pair for pair in pairs if not pair[0].endswith(":timestamp")]
            for first, pairs in yaml.CSafeLoader.yaml_implicit_resolvers.items()
        }

    return Loader


def parse(data: bytes, path: str) -> dict[str, Any]:
    """Parse YAML into a mapping."""
    import yaml

    try:
        document = yaml.load(data, _loader())  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else path
        what = f"not YAML: {quote_error(getattr(error, 'problem', None) or error)}"
        raise CatalogError(what, field=where, value=path) from error
    if not isinstance(document, dict):
        hint = "start the file with schema: facts/NAME/v1"
        raise CatalogError("not a mapping", field=path, value=path, hint=hint)
    return document


Schema = dict[str, Any]
_COMMON = "common.schema.json"  # the schema of what several files share, as references name it


def schema_folder() -> str:
    """Return the folder of the schemas."""
    return os.path.join(resources.locate("matrix"), "schema", "facts")


@lru_cache(maxsize=64)
def read_schema(source: str) -> Schema:
    """Return the schema of a fact file; the files of a folder share one."""
    path = os.path.join(schema_folder(), f"{format_of(source)}.schema.json")
    with open(path, encoding="utf-8") as file:
        schema: Schema = json.load(file)
    return schema


def natural_key(schema: Schema) -> tuple[str, ...]:
    """Return the fields that identify a record of a list; empty where the list is one value."""
    for choice in (schema, *schema.get("anyOf", ())):
        if key := choice.get("x-key"):
            return tuple(key)
    return ()


def item_schema(schema: Schema) -> Schema:
    """Return the schema of a list's records."""
    for choice in (schema, *schema.get("anyOf", ())):
        if isinstance(items := choice.get("items"), dict):
            return items
    return {}


def property_schema(schema: Schema, name: str) -> Schema:
    """Return the schema of a field; empty without one."""
    for choice in (schema, *schema.get("anyOf", ())):
        if isinstance(found := choice.get("properties", {}).get(name), dict):
            return found
    return {}


def schema_errors(
    source: str, document: Any, *, partial: bool = False
) -> Iterator[tuple[str, Any, str]]:
    """Yield schema errors: path, value and reason."""
    schema, validator = _validator(source, partial)
    for error in validator.iter_errors(document):
        node, steps = document, []
        for step in error.absolute_path:
            node = node[step]
            steps.append((step, node) if isinstance(step, int) else str(step))
        yield natural_path(schema, steps), error.instance, _reason(error)


@lru_cache(maxsize=128)
def _validator(source: str, partial: bool) -> tuple[Schema, Any]:
    from jsonschema import Draft202012Validator
    from referencing import Registry, Resource

    schema, common = read_schema(source), read_schema("common")
    if partial:
        sections = {
            name: {rule: value for rule, value in section.items() if rule != "minItems"}
            for name, section in schema["properties"].items()
        }
        schema = {**schema, "required": [], "properties": sections}
    inlined = _inline_references(schema, {"#": schema, _COMMON: common}, "#")
    registry: Any = Registry().with_resource(_COMMON, Resource.from_contents(common))
    return schema, Draft202012Validator(inlined, registry=registry)


def _inline_references(node: Any, files: dict[str, Schema], here: str) -> Any:
    """Replace references by what they name: to look each up costs as much as to validate by it.

    One beside a description stays, as errors are explained by the description of what it names.
    """
    if isinstance(node, list):
        return [_inline_references(part, files, here) for part in node]
    if not isinstance(node, dict):
        return node
    if not isinstance(reference := node.get("$ref"), str):
        return {key: _inline_references(part, files, here) for key, part in node.items()}
    file, _, pointer = reference.partition("#")
    file = file or here
    if len(node) > 1:
        return {**node, "$ref": f"{file.removesuffix('#')}#{pointer}"}
    found: Any = files[file]
    for key in pointer.strip("/").split("/"):
        found = found[key]
    return _inline_references(found, files, file)


Step = str | tuple[int, Any]  # a field, or a value of a list with its place


def natural_path(schema: Schema, steps: Iterable[Step]) -> str:
    """Return a path with natural keys instead of positions: ``releases[cuda=12.4.1].driver``."""
    text, described = "", schema
    for step in steps:
        if isinstance(step, str):
            text += f".{step}" if text else step
            described = property_schema(described, step)
        else:
            text += f"[{record_label(step[1], natural_key(described)) or step[0]}]"
            described = item_schema(described)
    return text


def record_label(record: Any, key: tuple[str, ...]) -> str:
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
    if error.validator == "required":
        absent = (repr(name) for name in error.validator_value if name not in error.instance)
        return f"{next((name for name in absent if name in error.message), 'a key')} is missing"
    if error.validator == "additionalProperties":
        known = error.schema.get("properties", ())
        return f"unknown key {', '.join(repr(k) for k in error.instance if k not in known)}"
    if error.validator == "type":
        return f"{error.instance!r} is not of the type {error.validator_value}"
    return f"has the wrong form: {quote_error(error.message)}"
