"""Find whole records of the fact files, and compare two sets of facts record by record.

Records are found by natural key, by series, and by any spelling of a GPU.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from msgspec import Struct

from compatgate.catalog import build, sources
from compatgate.catalog.library import Library
from compatgate.catalog.overlay import find_overlays
from compatgate.catalog.sources import natural_key, property_schema, read_schema
from compatgate.core.components import canonical_name
from compatgate.core.facts import Facts
from compatgate.core.gpus import normalise
from compatgate.core.performance import near_names
from compatgate.errors import BadInput

Record = dict[str, Any]
_GPU_FILES = frozenset({"gpus", "gpu_peaks"})  # files whose records are named after GPUs


def find_source(name: str, known: tuple[str, ...]) -> str:
    """Find the fact file of a table by its name or by any spelling of a framework's name."""
    by_title = {sources.title(source): source for source in reversed(known)}
    found = by_title.get(name) or by_title.get(canonical_name(name))
    if found:
        return found
    near = near_names(name, by_title, most=3, cutoff=0.5)
    tables = [sources.title(one) for one in known if not one.startswith("packages/")]
    hint = f"did you mean {' or '.join(near)}?" if near else f"one of {', '.join(tables)}"
    raise BadInput(f"no facts are named {name!r}", field="table", value=name, hint=hint)


def keyed_lists(source: str, document: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the lists of a fact file whose records have a natural key, with that key."""
    schema = read_schema(source)
    keys = {name: natural_key(property_schema(schema, name)) for name in document}
    return {name: key for name, key in keys.items() if key}


def record_name(record: Record, key: tuple[str, ...]) -> str:
    """Return the name of a record: the values of its key."""
    return " ".join(str(record[field]) for field in key)


def find_records(source: str, document: Mapping[str, Any], wanted: str) -> dict[str, list[Record]]:
    """Return the records that a text names, for each list.

    A text matches a record by its key, by one field of the key, or by its series (``12.4`` finds
    12.4.0 and 12.4.1). A GPU matches in every spelling of its name.
    """
    text, of_gpus = wanted.lower(), source in _GPU_FILES

    def matches_key(record: Record, key: tuple[str, ...]) -> bool:
        values = {str(record[field]).lower() for field in key} | {record_name(record, key).lower()}
        return text in values or (of_gpus and normalise(wanted) in _gpu_names(record))

    def matches_series(record: Record, key: tuple[str, ...]) -> bool:
        if of_gpus:
            return any(name.startswith(f"{normalise(wanted)}-") for name in _gpu_names(record))
        return any(str(record[field]).lower().startswith(f"{text}.") for field in key)

    for matches in (matches_key, matches_series):
        found = {
            name: hits
            for name, key in keyed_lists(source, document).items()
            if (hits := [record for record in document[name] if matches(record, key)])
        }
        if found:
            return found
    named = (
        name
        for part, key in keyed_lists(source, document).items()
        for record in document[part]
        for name in (record_name(record, key), *(str(record[f]) for f in key if len(key) > 1))
    )
    spoken = list(dict.fromkeys(named))
    near = near_names(wanted, spoken, most=3, cutoff=0.5)
    known = ", ".join([*spoken[:6], "..."] if len(spoken) > 6 else spoken)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {known}"
    title = sources.title(source)
    raise BadInput(f"{title} has no {wanted!r}", field="key", value=wanted, hint=hint)


def _gpu_names(record: Record) -> set[str]:
    return {normalise(text) for text in (record["name"], *(record.get("aliases") or ()))}


SHIPPED = "shipped"
Action = Literal["add", "change", "remove"]


class FactSet(Struct, frozen=True):
    """One side of a comparison; ``documents``: every fact file, parsed, overlays applied."""

    name: str
    facts: Facts
    documents: dict[str, dict[str, Any]]


class FieldChange(Struct, frozen=True):
    """A value that differs between two sets; None where a set lacks the field."""

    path: str
    before: Any
    after: Any


class RecordChange(Struct, frozen=True):
    """A record that only one set has, or that differs."""

    facts: str  # fact file, ``frameworks/torch``
    part: str  # list in the file, ``releases``; ``""`` for fields outside of lists of records
    key: str
    action: Action
    fields: tuple[FieldChange, ...] = ()


def open_set(name: str) -> FactSet:
    """Read a set of facts: ``shipped``, overlays (separated like ``PATH``) or a whole folder."""
    if name == SHIPPED:
        return _read_set(name, ())
    paths = [path for path in name.split(os.pathsep) if path]
    if not paths:
        raise BadInput("is empty", field="facts", value=name, hint=f"name a folder, or {SHIPPED}")
    files = {f"{table.source}{sources.SUFFIX}" for table in build.TABLES.values()}
    # A folder that holds every table is a whole catalog; otherwise it is an overlay.
    if len(paths) == 1 and all(os.path.isfile(os.path.join(paths[0], file)) for file in files):
        with sources.replace_root(paths[0]):
            return _read_set(name, ())
    return _read_set(name, paths)


def _read_set(name: str, overlays: list[str] | tuple[str, ...]) -> FactSet:
    """Read every table now: a folder replaces the shipped facts only while it is being read."""
    library = Library(find_overlays(overlays))
    for source in library.names:
        for table in build.typed_tables(source):
            library.compiled(table)
    documents = {source: library.document(source) for source in library.names}
    return FactSet(name, library.facts(), documents)


def compare_sets(before: FactSet, after: FactSet) -> list[RecordChange]:
    """List the records that differ, fact file by fact file."""
    names = sorted({*before.documents, *after.documents})
    return [
        change
        for name in names
        for change in _compare_files(name, before.documents.get(name), after.documents.get(name))
    ]


def _compare_files(
    name: str, before: dict[str, Any] | None, after: dict[str, Any] | None
) -> Iterator[RecordChange]:
    old, new = before or {}, after or {}
    keys = keyed_lists(name, {**old, **new})
    for part, key in keys.items():
        was_rows, now_rows = (
            {record_name(record, key): record for record in side.get(part) or ()}
            for side in (old, new)
        )
        yield from _compare_lists(name, part, was_rows, now_rows)
    was, now = ({k: v for k, v in side.items() if k not in keys} for side in (old, new))
    if before is not None and after is not None and (fields := tuple(compare_values(was, now))):
        yield RecordChange(name, "", "", "change", fields)


def _compare_lists(
    name: str, part: str, old: dict[str, Any], new: dict[str, Any]
) -> Iterator[RecordChange]:
    for key in old:
        if key not in new:
            yield RecordChange(name, part, key, "remove")
        elif fields := tuple(compare_values(old[key], new[key])):
            yield RecordChange(name, part, key, "change", fields)
    for key in new:
        if key not in old:
            yield RecordChange(name, part, key, "add")


def compare_values(before: Any, after: Any, path: str = "") -> Iterator[FieldChange]:
    """List the values that differ; lists of named objects are compared by name."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in dict.fromkeys([*before, *after]):
            yield from compare_values(
                before.get(name), after.get(name), f"{path}.{name}".lstrip(".")
            )
    elif _have_names(before) and _have_names(after):
        old, new = (
            {next(str(row[name]) for name in _NAMES if name in row): row for row in side}
            for side in (before, after)
        )
        for label in dict.fromkeys([*old, *new]):
            yield from compare_values(old.get(label), new.get(label), f"{path}[{label}]")
    elif before != after:
        yield FieldChange(path, before, after)


_NAMES = ("name", "path", "wheel")


def _have_names(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(row, Mapping) and any(n in row for n in _NAMES) for row in value)
    )
