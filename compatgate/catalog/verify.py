"""Whether the facts hold together: schemas, and what must agree between the files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from compatgate.catalog import load_facts, open_library, records, schema, sources
from compatgate.catalog.checks import Context, Problem, all_checks

EXCEPTIONS = "exceptions"


def verify(overlays: Sequence[str] | None = None) -> list[Problem]:
    """Check every fact file, overlays laid over them, and every record of a package.

    Findings that are known to be true stand with a reason in ``matrix/facts/exceptions.yaml``;
    one of those that nothing meets any more is a problem itself.

    Returns:
        Problems, none when all is well.

    Raises:
        BadInput: an overlay is malformed.
    """
    documents = _documents(overlays)
    wrong = [problem for name in documents for problem in _schema(name, documents[name])]
    excepted = _parse(EXCEPTIONS)
    wrong += _schema(EXCEPTIONS, excepted)
    if wrong:
        return wrong  # the tables cannot be trusted to be readable
    context = Context(load_facts(overlays), documents)
    found = [problem for check in all_checks() for problem in check(context)]
    found += records.problems()
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
        Problem("exceptions", f"{check} {subject}", "nothing meets this exception any more")
        for check, subject in sorted(known - met)
    ]
    return [p for p in found if (p.check, p.subject) not in known] + stale
