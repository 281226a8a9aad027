"""Read and write the records of measured wheels, one YAML file per package.

Each file below ``matrix/facts/packages/`` is named after its package. It holds records in the
format that ``compatgate facts measure`` prints, newest release first, and statements, written by
hand, about releases without a wheel to measure.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from packaging.version import Version

from compatgate.catalog import sources
from compatgate.core.facts.records import Record
from compatgate.errors import CatalogError, quote_error

VERSION = "facts/packages/v1"
_WIDTH = 120


def parse_records(name: str, document: dict[str, Any], path: str) -> tuple[Record, ...]:
    """Read the records of a parsed file."""
    try:
        found = msgspec.convert(document.get("records") or (), tuple[dict[str, Any], ...])
        return tuple(msgspec.convert({"package": name, **item}, Record) for item in found)
    except msgspec.ValidationError as error:
        what = f"holds no records: {quote_error(error)}"
        raise CatalogError(what, field=path, value=path) from None


def merge_records(path: str, name: str, records: Iterable[Record]) -> str:
    """Return the text of a package's file with some records in addition, or in place of older ones.

    The records of other wheels and the statements of the file are kept.
    """
    document = sources.parse(sources.read_bytes(path), path) if os.path.isfile(path) else {}
    if (other := document.get("package", name)) != name:
        what = f"has the records of {other}, not of {name}"
        raise CatalogError(what, field=path, value=other)
    merged = {one.wheel: one for one in (*parse_records(name, document, path), *records)}
    return to_yaml(name, list(merged.values()), document.get("statements", ()))


def to_yaml(
    name: str,
    records: Sequence[Record],
    statements: Sequence[Any] = (),
    *,
    with_sources: bool = False,
) -> str:
    """Return records as the YAML text of a package's file.

    The digest identifies the wheel also without its source.
    """
    left_out = ("package",) if with_sources else ("package", "source")
    import yaml

    ordered = sorted(records, key=lambda r: r.wheel)
    ordered.sort(key=lambda r: Version(r.version), reverse=True)
    rows = []
    for record in ordered:
        row = msgspec.to_builtins(record)
        rows.append({k: v for k, v in row.items() if k not in left_out})
    document: dict[str, Any] = {"schema": VERSION, "package": name}
    document |= {"statements": list(statements)} if statements else {}
    document |= {"records": _tuples_to_lists(rows)} if rows else {}
    return yaml.safe_dump(
        document, sort_keys=False, default_flow_style=None, width=_WIDTH, allow_unicode=True
    )


def _tuples_to_lists(value: Any) -> Any:
    """Replace tuples with lists; YAML would tag tuples as a Python type."""
    if isinstance(value, dict):
        return {key: _tuples_to_lists(item) for key, item in value.items()}
    return [_tuples_to_lists(item) for item in value] if isinstance(value, (list, tuple)) else value
