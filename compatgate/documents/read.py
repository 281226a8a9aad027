"""Read documents from files and request bodies: every mistake at once, or typed documents."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from compatgate.core.facts.nvidia import Gpus
from compatgate.documents import checks, schemas
from compatgate.documents.convert import many_objects
from compatgate.documents.sources import DocumentProblem, Problems, Source
from compatgate.documents.specs import API_VERSION, KINDS, TYPES, Document, Kind, explicit
from compatgate.documents.text import RawDocument, read_nodes

Read = Sequence[tuple[RawDocument, Document]]
Judge = Callable[[Read], Iterator[DocumentProblem]]
"""Yields the mistakes of documents that are valid each by itself."""


def read_documents(
    sources: Iterable[Source],
    gpus: Gpus,
    known_targets: Collection[str] = (),
    *,
    judge: Judge | None = None,
) -> list[Document]:
    """Read every document of some texts.

    Args:
        sources: YAML or JSON texts, several documents each.
        gpus: the GPU table, to check names.
        known_targets: further targets that documents may name.
        judge: yields further mistakes, in view of the stored documents.

    Raises:
        ManyProblems: syntax, schema and meaning, each problem with file, line and path.
    """
    problems = Problems()
    with many_objects():
        raws = [raw for source in sources for raw in read_nodes(source, problems)]
        documents = _read_all(raws, gpus, known_targets, problems, judge)
    problems.raise_if_any()
    return documents


def read_body(
    body: Any,
    kind: Kind,
    gpus: Gpus,
    known_targets: Collection[str] = (),
    *,
    name: str | None = None,
    judge: Judge | None = None,
) -> Document:
    """Read one document from a request.

    Args:
        body: the document; ``apiVersion`` and ``kind`` may be left out.
        kind: the expected kind.
        gpus: the GPU table, to check names.
        known_targets: targets that the document may name.
        name: the name in the request's path, which ``metadata.name`` may repeat.
        judge: yields further mistakes, in view of the stored documents.

    Raises:
        ManyProblems: every mistake, with its field path.
    """
    problems = Problems()
    raw = RawDocument(None, _completed(body, kind, name))
    _plain(raw, problems)
    if isinstance(raw.value, dict):
        _check_identity(raw, kind, name, problems)
    documents = _read_all([raw], gpus, known_targets, problems, judge)
    problems.raise_if_any()
    return documents[0]


def _completed(body: Any, kind: str, name: str | None) -> Any:
    if not isinstance(body, Mapping):
        return body
    completed = {"apiVersion": API_VERSION, "kind": kind, **body}
    metadata = completed.get("metadata", {})
    if name is not None and isinstance(metadata, Mapping):
        completed["metadata"] = {"name": name, **metadata}
    return completed


def _check_identity(raw: RawDocument, kind: str, name: str | None, problems: Problems) -> None:
    stated = raw.value["kind"]
    if stated in KINDS and stated != kind:
        hint = f"write {kind}"
        problems.add(raw.problem(("kind",), f"must be {kind}, not {stated}", hint=hint))
        raw.value["kind"] = kind
    metadata = raw.value.get("metadata")
    inside = metadata.get("name") if isinstance(metadata, dict) else None
    if name is not None and inside != name:
        what = f"the document says {inside!r}, the request {name!r}"
        path = ("metadata", "name")
        problems.add(raw.problem(path, what, value=inside, hint="a name cannot be changed"))


def _plain(raw: RawDocument, problems: Problems) -> None:
    """Replace a body by its plain JSON values, or report that it is not JSON."""
    try:
        raw.value = msgspec.json.decode(msgspec.json.encode(raw.value))
    except (UnicodeEncodeError, TypeError, ValueError, RecursionError):
        what = "not valid JSON: half of a surrogate pair, or a type that JSON does not have"
        problems.add(raw.problem((), what))
        raw.value = None


def _read_all(
    raws: Sequence[RawDocument],
    gpus: Gpus,
    known_targets: Collection[str],
    problems: Problems,
    judge: Judge | None,
) -> list[Document]:
    documents: list[tuple[RawDocument, Document]] = []
    targets = _target_names(raws) | set(known_targets)
    firsts: dict[tuple[str, str], RawDocument] = {}
    for raw in raws:
        if problems.enough:
            break
        kind = _kind(raw, problems)
        if kind is None:
            continue
        found = [*checks.check(raw, kind, gpus)]
        if kind != "Target":
            found += checks.check_target_refs(raw, targets)
        typed = _typed(raw, kind, problems, None if found else gpus)
        documents += [(raw, document) for document in typed]
        for problem in found:
            problems.add(problem)
        _check_once(raw, kind, firsts, problems)
    for problem in judge(documents) if judge else ():
        problems.add(problem)
    return [document for _, document in documents]


def _kind(raw: RawDocument, problems: Problems) -> Kind | None:
    if not isinstance(raw.value, dict):
        problems.add(
            raw.problem(
                (), "a document must be a mapping", hint="compatgate matrix example shows some"
            )
        )
        return None
    kind = raw.value.get("kind")
    if isinstance(kind, str) and kind in KINDS:
        return kind
    hint = f"one of {', '.join(KINDS)}"
    if kind is None:
        problems.add(raw.problem((), "kind is missing", hint=hint))
    else:
        problems.add(raw.problem(("kind",), f"{kind!r} is not known", value=kind, hint=hint))
    return None


def _typed(raw: RawDocument, kind: Kind, problems: Problems, gpus: Gpus | None) -> list[Document]:
    """Return the document as a struct; the schema explains a refusal.

    A document without ``gpus`` has mistakes already; it is only searched for more.
    """
    body = raw.value if gpus is None else checks.canonical(raw.value, kind, gpus)
    try:
        return [explicit(msgspec.convert(body, TYPES[kind]))]
    except msgspec.ValidationError as error:
        explained = list(schemas.explain(raw, kind)) or [raw.problem((), str(error))]
        for problem in explained:
            problems.add(problem)
        return []


def _check_once(
    raw: RawDocument,
    kind: Kind,
    firsts: dict[tuple[str, str], RawDocument],
    problems: Problems,
) -> None:
    metadata = raw.value.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str):
        return
    first = firsts.setdefault((kind, name), raw)
    if first is not raw:
        what = f"{kind} {name} is defined twice; first at {first.file}:{first.line()}"
        hint = "keep one of them"
        problems.add(raw.problem(("metadata", "name"), what, value=name, hint=hint))


def _target_names(raws: Iterable[RawDocument]) -> set[str]:
    names = set()
    for raw in raws:
        if isinstance(raw.value, dict) and raw.value.get("kind") == "Target":
            metadata = raw.value.get("metadata")
            name = metadata.get("name") if isinstance(metadata, dict) else None
            if isinstance(name, str):
                names.add(name)
    return names
