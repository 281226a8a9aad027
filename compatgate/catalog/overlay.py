"""Apply operators' own facts (overlays) to the shipped ones.

An overlay has the format of the file that it changes. Its records are matched by natural key
(``x-key`` in the schema): an existing record is changed field by field, a new one is added, and
``remove: true`` removes one. A list without a natural key is a single value. An overlay for a
framework that is not shipped is a complete fact file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from compatgate.catalog import sources
from compatgate.core.performance import sha256
from compatgate.errors import BadInput, CatalogError, CompatgateError, ManyProblems

ENVIRONMENT = "COMPATGATE_FACTS"
_SCHEMA = re.compile(rb"^schema:\s*['\"]?facts/(\w+)/v1\b", re.MULTILINE)
_COMPONENT = re.compile(rb"^component:\s*['\"]?([\w.-]+)", re.MULTILINE)
_PACKAGE = re.compile(rb"^package:\s*['\"]?([a-z0-9]+(?:-[a-z0-9]+)*)['\"]?\s*$", re.MULTILINE)
_BEFORE = {
    "pytorch": "torch",
    "tensorflow": "tensorflow",
    "jax": "jax",
    "onnxruntime": "onnxruntime-gpu",
    "vllm": "vllm",
    "cupy": "cupy",
    "tensorrt": "tensorrt",
}
"""Formats older than ``facts/framework/v1``, and the component of each."""


class Overlay(NamedTuple):
    """A file that changes a shipped fact file."""

    path: str
    target: str  # the fact file that it changes, without suffix
    digest: str

    @property
    def label(self) -> str:
        """Return file name and short digest, as verdicts show them."""
        return f"{os.path.basename(self.path)}@{self.digest[:12]}"


def find_overlays(paths: Sequence[str] | None) -> tuple[Overlay, ...]:
    """Find the named overlay files, or those of ``COMPATGATE_FACTS`` (separated like ``PATH``)."""
    if paths is None:
        paths = [p for p in os.environ.get(ENVIRONMENT, "").split(os.pathsep) if p]
    found = []
    for path in (file for folder in paths for file in _files(folder)):
        try:
            data = sources.read_bytes(path)
        except CatalogError as error:
            raise BadInput(error.problem, field=path, value=path) from error
        found.append(Overlay(path, _target(path, data), sha256(data)))
    return tuple(found)


def _files(path: str) -> list[str]:
    if not os.path.isdir(path):
        return [path]
    folders = [path, *(os.path.join(path, folder) for folder in sources.FOLDERS)]
    found = [
        os.path.join(folder, name)
        for folder in folders
        if os.path.isdir(folder)
        for name in sorted(os.listdir(folder))
        if name.endswith((".yaml", ".yml"))
    ]
    if not found:
        raise BadInput("no fact files (*.yaml) in this directory", field=path, value=path)
    return found


def _target(path: str, data: bytes) -> str:
    """Return the fact file that an overlay changes, by its ``schema`` line, else by its name."""
    stated = _SCHEMA.search(data)
    if stated and stated[1] == b"framework":
        return f"frameworks/{_component(path, data)}"
    if stated and stated[1] == b"packages":
        stated = _PACKAGE.search(data)
        if not stated:
            hint = "add a line such as package: xformers"
            raise BadInput("does not name its package", field=path, value=None, hint=hint)
        return f"packages/{stated[1].decode()}"
    if stated and (component := _BEFORE.get(stated[1].decode())):
        raise BadInput(
            f"schema facts/{stated[1].decode()}/v1 is no longer supported",
            field=path,
            value=stated[1].decode(),
            hint=f"write schema: facts/framework/v1 and component: {component}, and name the fields"
            f" as compatgate facts show {component} prints them",
        )
    known = {sources.title(name): name for name in sources.names()}
    named = os.path.splitext(os.path.basename(path))[0]
    if stated:
        known = {title: name for title, name in known.items() if title == name}
        named = stated[1].decode()
    if named not in known:
        schemas = sorted({sources.format_of(name) for name in sources.names()})
        raise BadInput(
            "does not name the facts it changes",
            field=path,
            value=named,
            hint=f"start the file with schema: facts/NAME/v1, NAME one of {', '.join(schemas)}",
        )
    return known[named]


def _component(path: str, data: bytes) -> str:
    from compatgate.core.components import resolve_component

    stated = _COMPONENT.search(data)
    if not stated:
        hint = "add a line such as component: torch"
        raise BadInput("does not name its framework", field=path, value=None, hint=hint)
    named, field = stated[1].decode(), f"{path}: component"
    try:
        name = resolve_component(named).component.name
    except BadInput as error:
        raise BadInput(error.problem, field=field, value=named, hint=error.hint) from error
    if name != named:
        what, hint = f"{named!r} is an alias of {name}", f"write component: {name}"
        raise BadInput(what, field=field, value=named, hint=hint)
    return name


def merge_overlays(
    source: str, shipped: dict[str, Any], overlays: Iterable[Overlay]
) -> dict[str, Any]:
    """Apply operators' files to a shipped file; the last one wins."""
    schema = sources.read_schema(source)
    for overlay in overlays:
        try:
            document = sources.parse(sources.read_bytes(overlay.path), overlay.path)
        except CatalogError as error:
            raise BadInput(
                error.problem, field=error.field, value=error.value, hint=error.hint
            ) from error
        touched: dict[str, Any] = {}
        whole = not shipped  # a new file must be complete
        shipped = _merge_sections(shipped, document, schema, touched, overlay.path)
        problems: list[CompatgateError] = [
            BadInput(reason, field=f"{overlay.path}: {where}".rstrip(": "), value=value)
            for where, value, reason in sources.schema_errors(source, touched, partial=not whole)
        ]
        if len(problems) == 1:
            raise problems[0]
        if problems:
            raise ManyProblems(f"{overlay.path} cannot be used; no facts were changed", problems)
    return shipped


def _merge_sections(
    base: dict[str, Any],
    over: dict[str, Any],
    schema: dict[str, Any],
    touched: dict[str, Any],
    path: str,
) -> dict[str, Any]:
    """Merge an overlay's sections into the base; collect changed values in ``touched``."""
    result = dict(base)
    for name, value in over.items():
        described, there = sources.property_schema(schema, name), base.get(name)
        key = sources.natural_key(described)
        if key and isinstance(value, list) and isinstance(there, list | None):
            rows = _Rows(there or [], key, described, f"{path}: {name}")
            result[name], touched[name] = rows.lay_over(value)
        elif isinstance(value, dict) and isinstance(there, dict):
            result[name] = touched[name] = _merge_sections(there, value, described, {}, path)
        else:
            result[name] = touched[name] = value
    return result


class _Rows:
    def __init__(
        self, records: list[Any], key: tuple[str, ...], schema: dict[str, Any], where: str
    ) -> None:
        self.key, self.schema, self.where = key, sources.item_schema(schema), where
        self.named = schema.get("x-named") is True
        self.rows = {self._name(record): record for record in records}

    def _name(self, record: Any) -> tuple[Any, ...]:
        missing = [f for f in self.key if not isinstance(record, dict) or f not in record]
        if missing:
            hint = f"records of this list are identified by {', '.join(self.key)}"
            raise BadInput(
                f"a record lacks {missing[0]}", field=self.where, value=record, hint=hint
            )
        return tuple(record[field] for field in self.key)

    def lay_over(self, records: list[Any]) -> tuple[list[Any], list[Any]]:
        """Return all records, and the changed or added ones."""
        touched = []
        for record in records:
            name = self._name(record)
            if record.get("remove") is True:
                self._remove(name)
                continue
            fields = {k: v for k, v in record.items() if k != "remove"}
            there = self.rows.get(name, {})
            self.rows[name] = _merge_sections(there, fields, self.schema, {}, self.where)
            touched.append(self.rows[name])
        return list(self.rows.values()), touched

    def _remove(self, name: tuple[Any, ...]) -> None:
        shown = ",".join(f"{k}={v}" for k, v in zip(self.key, name, strict=True))
        field = f"{self.where}[{shown}]"
        if self.named:
            hint = "change its fields instead"
            raise BadInput("a rule names this record", field=field, value=shown, hint=hint)
        if self.rows.pop(name, None) is None:
            raise BadInput("the record to remove does not exist", field=field, value=shown)
