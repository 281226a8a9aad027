"""Verify the facts: schema, references, and what makes an overlay unsafe.

Each record has a source and a unique name, each address is public, what a record names exists, and
a record of a wheel agrees with itself. Whether the shipped files agree with each other in
everything else is a matter of the tests (``tests/conformance/fact_checks``).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from compatgate.catalog import load_facts, open_library, sources
from compatgate.catalog.records import parse_records
from compatgate.catalog.references import REFERENCES, Check, Context, Problem
from compatgate.catalog.sources import (
    item_schema,
    natural_key,
    property_schema,
    read_schema,
    record_label,
)
from compatgate.core.facts.records import Record
from compatgate.core.gpu_code import parse_capability

_URL = re.compile(r"https?://([^/\s\"')]+)")
_NAME = re.compile(r"(?:[a-z0-9-]+\.)+[a-z]{2,24}")
_PRIVATE = re.compile(r"(?:^|\.)(?:internal|local|localhost|corp|lan|intra|home|test|invalid)$")


def verify(overlays: Sequence[str] | None = None) -> list[Problem]:
    """Check every fact file, overlays applied; return the problems.

    ``matrix/facts/exceptions.yaml`` lists those that are known, each with its reason.
    """
    known = find_known()
    return [p for p in find_problems(overlays) if (p.check, p.subject) not in known]


def find_problems(
    overlays: Sequence[str] | None = None, checks: Sequence[Check] | None = None
) -> list[Problem]:
    """Run checks, by default all of the catalog; known problems are among the results.

    Malformed files have schema errors alone: their tables may not be readable.
    """
    documents = _documents(overlays)
    if wrong := [
        Problem("schema", f"{name} {where}".strip(), reason)
        for name, document in documents.items()
        for where, _, reason in sources.schema_errors(name, document)
    ]:
        return wrong
    context = Context(load_facts(overlays), documents)
    return [problem for check in checks or CHECKS for problem in check(context)]


def find_known() -> set[tuple[str, str]]:
    """Return check and subject of the known problems of the shipped facts."""
    path = sources.source_path("exceptions")
    document = sources.parse(sources.read_bytes(path), path)
    return {(entry["check"], entry["subject"]) for entry in document["exceptions"]}


def _documents(overlays: Sequence[str] | None) -> dict[str, dict[str, Any]]:
    library = open_library(overlays)
    return {name: library.document(name) for name in library.names}


def named_once(context: Context) -> Iterator[Problem]:
    """Check that the records of a list have different natural keys (Xid codes, toolkits, GPUs)."""
    for source, where, records, key in _lists(context):
        counted = Counter(record_label(record, key) for record in records)
        for name in (name for name, count in counted.items() if count > 1):
            yield Problem("named-once", f"{source} {where}[{name}]", "appears more than once")


def sourced(context: Context) -> Iterator[Problem]:
    """Check that every record has a source and a confidence; a wheel's record has a digest."""
    for source, where, records, key in _lists(context):
        if "." in where:
            continue
        for record in records:
            if "sha256" in record:
                continue
            for ending in ("source", "confidence"):
                if not any(k.endswith(ending) and v for k, v in record.items()):
                    subject = f"{source} {where}[{record_label(record, key)}]"
                    yield Problem("sourced", subject, f"no {ending}")


def public_addresses(context: Context) -> Iterator[Problem]:
    """Check that every address is public."""
    for source, document in context.documents.items():
        for text in _addressed(document):
            for host in _URL.findall(text):
                if not _NAME.fullmatch(host.lower()) or _PRIVATE.search(host.lower()):
                    yield Problem("public-addresses", source, f"{host} is not a public host")


def _addressed(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for value in node.values():
            yield from _addressed(value)
    elif isinstance(node, list):
        for value in node:
            yield from _addressed(value)
    elif isinstance(node, str) and "://" in node:
        yield node


def _lists(context: Context) -> Iterator[tuple[str, str, list[Any], tuple[str, ...]]]:
    """Yield the lists whose records have a natural key: file, path, records, key."""
    for source, document in context.documents.items():
        yield from _walk(source, "", document, read_schema(source))


def _walk(
    source: str, where: str, node: Any, schema: dict[str, Any]
) -> Iterator[tuple[str, str, list[Any], tuple[str, ...]]]:
    if isinstance(node, dict):
        for name, value in node.items():
            if isinstance(value, dict | list):
                path = f"{where}.{name}" if where else str(name)
                yield from _walk(source, path, value, property_schema(schema, str(name)))
    elif isinstance(node, list):
        if key := natural_key(schema):
            yield source, where, node, key
        inner = item_schema(schema)
        for record in node:
            if isinstance(record, dict | list):
                yield from _walk(source, f"{where}[]", record, inner)


def package_records(context: Context) -> Iterator[Problem]:
    """Check the records and statements of each package; each record has its own wheel."""
    digests: dict[str, str] = {}
    for name, document in context.documents.items():
        folder, _, package = name.partition("/")
        if folder != "packages":
            continue
        if document["package"] != package:
            yield Problem("package-name", name, f"the file is about {document['package']}")
        for record in parse_records(package, document, name):
            yield from _record_problems(record)
            other = digests.setdefault(record.sha256 or record.wheel, record.wheel)
            if other != record.wheel:
                what = f"has the same SHA-256 as {other}: each record needs its own wheel"
                yield Problem("package-digest", f"{name} {record.wheel}", what)
        rows = document.get("statements") or ()
        for row in rows:
            yield from _statement_problems(package, row)
        shipped = any(r.get("compiled") == "shipped" and not r.get("cuda") for r in rows)
        if shipped and not any(row.get("last_capability") for row in rows):
            what = "shipped code needs its newest GPU or its CUDA: else it passes on any later GPU"
            yield Problem("package-capability", f"packages/{name}", what)


def _statement_problems(name: str, row: dict[str, Any]) -> Iterator[Problem]:
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


def _record_problems(record: Record) -> Iterator[Problem]:
    subject = f"packages/{record.package} {record.wheel}"
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
        counts = {**library.sass, **library.ptx}
        if max(counts.values(), default=0) > library.units:
            what = f"{library.path} has more units of one architecture than units"
            yield Problem("package-units", subject, what)
            continue
        counted = Counter[str]()
        for codes, count in library.code_of_units:
            counted.update(dict.fromkeys(codes, count))
        total = sum(count for _, count in library.code_of_units)
        if total != library.units or counted != Counter(counts):
            what = f"the profiles of {library.path} do not add up to its units"
            yield Problem("package-units", subject, what)


CHECKS: tuple[Check, ...] = (named_once, sourced, public_addresses, package_records, *REFERENCES)


class Origins(Struct, frozen=True):
    """Counts of facts by origin."""

    measured: int  # records of wheels, each with the wheel's SHA-256
    # count by confidence: ``published``, ``metadata`` (read from a release) or ``derived``
    # (concluded by others, so never a reason to deny)
    statements: dict[str, int]


def origins(overlays: Sequence[str] | None = None) -> Origins:
    """Count facts that are measured, published, read from releases or derived."""
    documents = _documents(overlays)
    packages = {name: doc for name, doc in documents.items() if name.startswith("packages/")}
    measured = [
        record
        for document in packages.values()
        for record in document.get("records") or ()
        if record.get("sha256")
    ]
    told = Counter(one for document in documents.values() for one in _confidences(document))
    return Origins(
        len(measured), {name: told[name] for name in ("published", "metadata", "derived")}
    )


def _confidences(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("confidence"), str):
            yield value["confidence"]
        value = list(value.values())
    for part in value if isinstance(value, list) else ():
        yield from _confidences(part)
