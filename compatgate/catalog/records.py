"""Read, write and check the records of measured wheels, one YAML file per package.

Each file below ``matrix/facts/packages/`` is named after its package. It holds records in the
format that ``compatgate facts measure`` prints, newest release first, and statements, written by
hand, about releases without a wheel to measure.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from compatgate.catalog import schema, sources
from compatgate.catalog.checks import Problem
from compatgate.core.facts.records import Library, Record
from compatgate.core.gpu_code import parse_capability
from compatgate.errors import CatalogError

SCHEMA = "packages"
VERSION = "facts/packages/v1"
_WIDTH = 120


def directory() -> str:
    """Return the folder of the shipped records."""
    return os.path.join(sources.facts_dir(), SCHEMA)


def names() -> tuple[str, ...]:
    """List the packages that have records."""
    if not os.path.isdir(directory()):
        return ()
    found = (name for name in os.listdir(directory()) if name[0] != ".")
    return tuple(
        sorted(n.removesuffix(sources.SUFFIX) for n in found if n.endswith(sources.SUFFIX))
    )


def read_package(name: str) -> tuple[Record, ...]:
    """Read the records of a package; empty without a file.

    Raises:
        CatalogError: the file is malformed.
    """
    return of_document(name, _document(name), _path(name))


def of_document(name: str, document: dict[str, Any], path: str) -> tuple[Record, ...]:
    """Read the records of a parsed file.

    Raises:
        CatalogError: the file is malformed.
    """
    try:
        found = msgspec.convert(document.get("records") or (), tuple[dict[str, Any], ...])
        return tuple(msgspec.convert({"package": name, **item}, Record) for item in found)
    except msgspec.ValidationError as error:
        raise CatalogError(str(error), field=path, value=path) from None


def _document(name: str) -> dict[str, Any]:
    path = _path(name)
    return sources.parse(sources.read_bytes(path), path) if os.path.isfile(path) else {}


def write_package(name: str, records: Iterable[Record]) -> None:
    """Write records of a package; keep the records of other wheels and all statements."""
    merged = {record.wheel: record for record in (*read_package(name), *records)}
    statements = _document(name).get("statements", ())
    os.makedirs(directory(), exist_ok=True)
    with open(_path(name), "w", encoding="utf-8") as file:
        file.write(to_yaml(name, list(merged.values()), statements))


def to_yaml(
    name: str,
    records: Sequence[Record],
    statements: Sequence[Any] = (),
    *,
    with_sources: bool = False,
) -> str:
    """Return records as the YAML text of a package's file.

    Args:
        name: name of the package.
        records: records of its wheels.
        statements: statements, as in the file.
        with_sources: write the source of each record; the digest identifies the wheel either way.
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
    document |= {"records": _plain(rows)} if rows else {}
    return yaml.safe_dump(
        document, sort_keys=False, default_flow_style=None, width=_WIDTH, allow_unicode=True
    )


def problems() -> Iterator[Problem]:
    """Check every file of records: schema, name and consistency of each record."""
    for name in names():
        path = _path(name)
        document = sources.parse(sources.read_bytes(path), path)
        wrong = [Problem("schema", f"packages/{name} {w}", r) for w, _, r in _errors(document)]
        yield from wrong
        if wrong:
            continue
        if document["package"] != name:
            yield Problem(
                "package-name", f"packages/{name}", f"the file is about {document['package']}"
            )
        seen: set[str] = set()
        for record in read_package(name):
            yield from _of_record(record, seen)
            seen.add(record.wheel)
        for row in document.get("statements") or ():
            yield from _of_statement(name, row)


def _of_statement(name: str, row: dict[str, Any]) -> Iterator[Problem]:
    subject = f"packages/{name} {row['versions']}"
    ranges = [row["versions"], *(b["cuda"] for b in row.get("builds") or () if "cuda" in b)]
    for text in ranges:
        try:
            SpecifierSet(text)
        except InvalidSpecifier:
            yield Problem("package-versions", subject, f"{text!r} is not a range of versions")
    for text in row.get("requires") or ():
        try:
            Requirement(text)
        except InvalidRequirement:
            yield Problem("package-requires", subject, f"{text!r} is not a requirement")
    least, last = row.get("least_capability"), row.get("last_capability")
    if least and last and parse_capability(least) > parse_capability(last):
        yield Problem("package-capability", subject, f"{least} is above {last}")
    if row.get("fixed") and not row.get("builds"):
        yield Problem("package-builds", subject, "names no builds, so no fix is possible")


def overlaid_problems(documents: Mapping[str, dict[str, Any]]) -> Iterator[Problem]:
    """Check records from overlays, and that each record has its own wheel.

    Args:
        documents: every fact file by name, overlays applied.
    """
    digests: dict[str, str] = {}
    for name, document in documents.items():
        folder, _, package = name.partition("/")
        if folder != SCHEMA:
            continue
        shipped = {record.wheel for record in read_package(package)}
        for record in of_document(package, document, name):
            if record.wheel not in shipped:
                yield from _of_record(record, set())
            other = digests.setdefault(record.sha256 or record.wheel, record.wheel)
            if other != record.wheel:
                what = f"has the same SHA-256 as {other}: each record needs its own wheel"
                yield Problem("package-digest", f"{name} {record.wheel}", what)


def _of_record(record: Record, seen: set[str]) -> Iterator[Problem]:
    subject = f"packages/{record.package} {record.wheel}"
    if record.wheel in seen:
        yield Problem("package-wheel", subject, "has two records")
    try:
        package, version, _, _ = parse_wheel_filename(record.wheel)
    except InvalidWheelFilename:
        yield Problem("package-wheel", subject, "is not the file name of a wheel")
        return
    if package != record.package or version != Version(record.version):
        yield Problem("package-wheel", subject, f"the file name says {package} {version}")
    paths = {library.path for library in record.libraries}
    for group in record.alternatives:
        if missing := sorted(set(group) - paths):
            yield Problem("package-alternatives", subject, f"{missing[0]} is not among libraries")
    for library in record.libraries:
        counts = [*library.sass.values(), *library.ptx.values()]
        if max(counts, default=0) > library.units:
            what = f"{library.path} has more units of one architecture than units"
            yield Problem("package-units", subject, what)
        elif not _profiles_add_up(library):
            what = f"the profiles of {library.path} do not add up to its units"
            yield Problem("package-units", subject, what)


def _profiles_add_up(library: Library) -> bool:
    counted = Counter[str]()
    for codes, count in library.code_of_units:
        counted.update(dict.fromkeys(codes, count))
    total = sum(count for _, count in library.code_of_units)
    return total == library.units and counted == Counter({**library.sass, **library.ptx})


def _errors(document: dict[str, Any]) -> Iterator[tuple[str, Any, str]]:
    return schema.errors(SCHEMA, document)


def _path(name: str) -> str:
    return os.path.join(directory(), name + sources.SUFFIX)


def _plain(value: Any) -> Any:
    """Replace tuples with lists; YAML would tag tuples as a Python type."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
