"""Finding whole records of the fact files: by natural key, by series, by any spelling of a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from compatgate.catalog import sources
from compatgate.catalog.schema import natural_key, of_property, read_schema
from compatgate.core.components import resolve_component
from compatgate.errors import BadInput

Record = dict[str, Any]
_OF_GPUS = frozenset({"gpus", "gpu_peaks"})
"""Files whose records are named by GPUs."""


def source_of(name: str, known: tuple[str, ...]) -> str:
    """Find the fact file of a table, by its name or by any spelling of a framework's name.

    Raises:
        BadInput: there is no such table; names the nearest.
    """
    by_title = {sources.title(source): source for source in reversed(known)}
    found = by_title.get(name) or by_title.get(_canonical(name))
    if found:
        return found
    near = get_close_matches(name, by_title, n=3, cutoff=0.5)
    tables = [sources.title(one) for one in known if not one.startswith("packages/")]
    hint = f"did you mean {' or '.join(near)}?" if near else f"one of {', '.join(tables)}"
    raise BadInput(f"there are no facts named {name!r}", field="table", value=name, hint=hint)


def _canonical(name: str) -> str:
    try:
        return resolve_component(name).component.name
    except BadInput:
        return name


def lists(source: str, document: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """The lists of a fact file whose records can be named, and their keys."""
    schema = read_schema(source)
    keys = {name: natural_key(of_property(schema, name)) for name in document}
    return {name: key for name, key in keys.items() if key}


def name_of(record: Record, key: tuple[str, ...]) -> str:
    """What a record is called: its key's values."""
    return " ".join(str(record[field]) for field in key)


def find(source: str, document: Mapping[str, Any], wanted: str) -> dict[str, list[Record]]:
    """Records that a text names, per list.

    A record answers to its key, to one field of it, to the series it belongs to (``12.4`` finds
    12.4.0 and 12.4.1), and a GPU to every spelling of its name.

    Raises:
        BadInput: none does; names the nearest.
    """
    for matches in (_exactly, _in_series):
        found = {
            name: hits
            for name, key in lists(source, document).items()
            if (hits := [r for r in document[name] if matches(source, r, key, wanted)])
        }
        if found:
            return found
    spoken = list(dict.fromkeys(_spoken(source, document)))
    near = get_close_matches(wanted, spoken, n=3, cutoff=0.5)
    known = ", ".join([*spoken[:6], "..."] if len(spoken) > 6 else spoken)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {known}"
    title = sources.title(source)
    raise BadInput(f"{title} has no {wanted!r}", field="key", value=wanted, hint=hint)


def _exactly(source: str, record: Record, key: tuple[str, ...], wanted: str) -> bool:
    values = {str(record[field]).lower() for field in key} | {name_of(record, key).lower()}
    if wanted.lower() in values:
        return True
    return source in _OF_GPUS and _normalised(wanted) in _gpu_names(record)


def _in_series(source: str, record: Record, key: tuple[str, ...], wanted: str) -> bool:
    if source in _OF_GPUS:
        return any(name.startswith(f"{_normalised(wanted)}-") for name in _gpu_names(record))
    return any(str(record[field]).lower().startswith(f"{wanted.lower()}.") for field in key)


def _normalised(text: str) -> str:
    from compatgate.core.gpus import normalise

    return normalise(text)


def _gpu_names(record: Record) -> set[str]:
    return {_normalised(text) for text in (record["name"], *(record.get("aliases") or ()))}


def _spoken(source: str, document: Mapping[str, Any]) -> Iterator[str]:
    for name, key in lists(source, document).items():
        for record in document[name]:
            yield name_of(record, key)
            yield from (str(record[field]) for field in key if len(key) > 1)
