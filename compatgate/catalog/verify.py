"""Verify the facts: schemas, and consistency between the files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from compatgate.catalog import load_facts, open_library, records, schema, sources
from compatgate.catalog.checks import Context, Problem, all_checks

EXCEPTIONS = "exceptions"


class Origins(Struct, frozen=True):
    """Counts of facts by origin.

    Attributes:
        measured: records of wheels, each with the wheel's SHA-256.
        statements: count by confidence: ``published``, ``metadata`` (read from a release) or
            ``derived`` (concluded by others, so never a reason to deny).
    """

    measured: int
    statements: dict[str, int]


def origins(overlays: Sequence[str] | None = None) -> Origins:
    """Count facts that are measured, published, read from releases or derived.

    Raises:
        BadInput: an overlay is malformed.
    """
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


def verify(overlays: Sequence[str] | None = None) -> list[Problem]:
    """Check every fact file, overlays applied, and every record of a package.

    ``matrix/facts/exceptions.yaml`` lists known problems with a reason. An exception that matches
    no problem is a problem, too.

    Returns:
        Problems; empty when the facts are consistent.

    Raises:
        BadInput: an overlay is malformed.
    """
    documents = _documents(overlays)
    wrong = [problem for name in documents for problem in _schema(name, documents[name])]
    excepted = _parse(EXCEPTIONS)
    wrong += _schema(EXCEPTIONS, excepted)
    if wrong:
        return wrong  # malformed tables may not be readable
    context = Context(load_facts(overlays), documents)
    found = [problem for check in all_checks() for problem in check(context)]
    found += records.problems()
    found += records.overlaid_problems(documents)
    return _without_exceptions(found, excepted["exceptions"])


def _documents(overlays: Sequence[str] | None) -> dict[str, dict[str, Any]]:
    library = open_library(overlays)
    return {name: library.document(name) for name in library.names}


def _parse(name: str) -> dict[str, Any]:
    path = sources.source_path(name)
    return sources.parse(sources.read_bytes(path), path)


def _schema(name: str, document: dict[str, Any]) -> Iterator[Problem]:
    for where, _, reason in schema.errors(name, document):
        yield Problem("schema", f"{name} {where}".strip(), reason)


def _without_exceptions(found: list[Problem], excepted: list[dict[str, Any]]) -> list[Problem]:
    known = {(entry["check"], entry["subject"]) for entry in excepted}
    met = {(problem.check, problem.subject) for problem in found}
    stale = [
        Problem("exceptions", f"{check} {subject}", "this exception matches no problem")
        for check, subject in sorted(known - met)
    ]
    return [p for p in found if (p.check, p.subject) not in known] + stale
