"""Read documents from files and request bodies: every mistake at once, or typed documents.

JSON Schemas say which shape a document has; each difference is explained.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, islice
from typing import Any

import msgspec

from compatgate.core.facts.nvidia import Gpus
from compatgate.core.performance import near_names, pause_garbage_collection
from compatgate.documents import checks, quantities, specs
from compatgate.documents.sources import (
    MAX_EXPLAINED,
    MAX_PROBLEMS,
    DocumentProblem,
    FieldPath,
    Problems,
    Source,
)
from compatgate.documents.specs import API_VERSION, KINDS, TYPES, Document, Kind, make_explicit
from compatgate.documents.text import RawDocument, get_at, read_nodes
from compatgate.errors import CompatgateError, explain_form, quote_error
from compatgate.resources import matrix_dir

ParsedDocuments = Sequence[tuple[RawDocument, Document]]
DocumentCheck = Callable[[ParsedDocuments], Iterator[DocumentProblem]]
"""Yields the mistakes of documents that are valid each by itself."""


def read_documents(
    sources: Iterable[Source],
    gpus: Gpus,
    known_targets: Collection[str] = (),
    *,
    judge: DocumentCheck | None = None,
) -> list[Document]:
    """Read every document; ``judge`` yields mistakes in view of the stored documents."""
    problems = Problems()
    with pause_garbage_collection():
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
    judge: DocumentCheck | None = None,
) -> Document:
    """Read one document from a request.

    ``apiVersion`` and ``kind`` may be left out, and ``metadata.name`` where the path has a name.
    """
    problems = Problems()
    if isinstance(body, Mapping):
        body = {"apiVersion": API_VERSION, "kind": kind, **body}
        metadata = body.get("metadata", {})
        if name is not None and isinstance(metadata, Mapping):
            body["metadata"] = {"name": name, **metadata}
    raw = RawDocument(None, body)
    try:
        raw.value = msgspec.json.decode(msgspec.json.encode(raw.value))
    except (UnicodeEncodeError, TypeError, ValueError, RecursionError):
        what = "not valid JSON: half of a surrogate pair, or a type that JSON does not have"
        problems.add(raw.problem((), what))
        raw.value = None
    if isinstance(raw.value, dict):
        stated, inside = raw.value["kind"], get_at(raw.value, "metadata", "name")
        if stated in KINDS and stated != kind:
            hint = f"write {kind}"
            problems.add(raw.problem(("kind",), f"must be {kind}, not {stated}", hint=hint))
            raw.value["kind"] = kind
        if name is not None and inside != name:
            what = f"the document says {inside!r}, the request {name!r}"
            path = ("metadata", "name")
            problems.add(raw.problem(path, what, value=inside, hint="a name cannot be changed"))
    documents = _read_all([raw], gpus, known_targets, problems, judge)
    problems.raise_if_any()
    return documents[0]


def _read_all(
    raws: Sequence[RawDocument],
    gpus: Gpus,
    known_targets: Collection[str],
    problems: Problems,
    judge: DocumentCheck | None,
) -> list[Document]:
    documents: list[tuple[RawDocument, Document]] = []
    targets = set(known_targets)
    for raw in raws:
        name = get_at(raw.value, "metadata", "name")
        if get_at(raw.value, "kind") == "Target" and isinstance(name, str):
            targets.add(name)
    firsts: dict[tuple[str, str], RawDocument] = {}
    for raw in raws:
        if problems.enough:
            break
        kind = _read_kind(raw, problems)
        if kind is None:
            continue
        mistakes = checks.check(raw, kind, gpus)
        if kind != "Target":
            mistakes = chain(mistakes, checks.check_target_refs(raw, targets))
        found = list(islice(mistakes, MAX_PROBLEMS))
        typed = _convert_document(raw, kind, problems, gpus, found)
        documents += [(raw, document) for document in typed]
        problems.extend(found)
        name = get_at(raw.value, "metadata", "name")
        first = firsts.setdefault((kind, name), raw) if isinstance(name, str) else raw
        if first is not raw:
            what = f"{kind} {name} is defined twice; first at {first.file}:{first.line()}"
            hint = "keep one of them"
            problems.add(raw.problem(("metadata", "name"), what, value=name, hint=hint))
    if judge and not problems.enough:
        problems.extend(judge(documents))
    return [document for _, document in documents]


def _read_kind(raw: RawDocument, problems: Problems) -> Kind | None:
    if not isinstance(raw.value, dict):
        hint = "for examples, run: compatgate matrix example"
        problems.add(raw.problem((), "a document must be a mapping", hint=hint))
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


def _convert_document(
    raw: RawDocument, kind: Kind, problems: Problems, gpus: Gpus, found: list[DocumentProblem]
) -> list[Document]:
    """Return the document as a struct; the schema explains a refusal.

    Of a large document only the first mistake is told. One with mistakes, ``found``, is only
    searched for more, in other fields.
    """
    body = raw.value if found else checks.to_canonical(raw.value, kind, gpus)
    try:
        return [make_explicit(msgspec.convert(body, TYPES[kind]))]
    except msgspec.ValidationError as error:
        before, known = len(problems), {problem.field for problem in found}
        if problems.may_explain(_count_values(raw.value)):
            problems.extend(p for p in explain_mistakes(raw, kind) if p.field not in known)
        if len(problems) == before and not found:
            problems.add(raw.problem((), explain_form(error, "the document")))
        return []


def _count_values(document: Any) -> int:
    """Return the number of values of a document, or one above `MAX_EXPLAINED`."""
    count, rest = 0, [document]
    while rest and count <= MAX_EXPLAINED:
        value = rest.pop()
        count += 1
        if isinstance(value, dict):
            rest += value.values()
        elif isinstance(value, list):
            rest += value
    return count


_NAME = "letters, digits, and . _ - between them; at most 128 characters"
_LABEL = "letters, digits and . _ : / @ + -"
_PATTERNS = {
    specs.NAME_PATTERN: ("is not a name", _NAME),
    specs.REF_PATTERN: ("is not a target's name", f"{_NAME}; or * for every target"),
    specs.LINE_PATTERN: ("must be one line of text", "1 to 512 characters, no control characters"),
    specs.TOOL_PATTERN: ("is not a folder below /opt", "like /opt/nccl-tests"),
    specs.TEXT_PATTERN: ("must not hold a NUL character", ""),
    specs.LABEL_KEY_PATTERN: ("is not a label's key", _LABEL),
    specs.LABEL_PATTERN: ("is not a label's value", _LABEL),
    quantities.DURATION_PATTERN: (
        "is not a duration",
        "a whole number and s, m, h, d or w, like 30d or 12h",
    ),
    specs.DATE_PATTERN: ("is not a date", "like 2027-01-31"),
    specs.RULE_PATTERN: ("is not a rule's id", "like CG803"),
    specs.SLUG_PATTERN: ("is not a name", "a-z, 0-9 and - between them; at most 48 characters"),
    specs.VARIABLE_PATTERN: ("is not the name of a variable", "like OMP_NUM_THREADS"),
    specs.TIME_PATTERN: ("is not a time of day", "like 08:30"),
    specs.ENDPOINT_PATTERN: (
        "is not an engine's address",
        "like unix:///var/run/docker.sock, tcp://host:2376 or ssh://user@host",
    ),
    specs.DIGEST_PATTERN: ("is not a digest", "sha256: and 64 of 0-9 and a-f"),
    specs.CONTENT_PATTERN: ("is not a workload's content", "like gemm@0123456789ab"),
    specs.MOMENT_PATTERN: ("is not a time", "like 2026-11-21T20:16:37Z"),
    quantities.SIZE_PATTERN: ("is not a size", quantities.SIZE_HINT),
}
_TYPES = {
    "string": "must be text",
    "object": "must be a mapping",
    "array": "must be a list",
    "integer": "must be a whole number",
    "boolean": "must be true or false",
    "number": "must be a number",
}


def load_schema(kind: str) -> dict[str, Any]:
    """Return the JSON Schema of a kind, as shipped."""
    loaded: dict[str, Any] = _validator(kind).schema
    return loaded


def explain_mistakes(raw: RawDocument, kind: str) -> Iterator[DocumentProblem]:
    """Yield every difference of a document from the schema of its kind."""
    for error in _validator(kind).iter_errors(raw.value):
        yield from _translate(raw, error)


@lru_cache(maxsize=16)
def _validator(kind: str) -> Any:
    from jsonschema import Draft202012Validator

    path = matrix_dir() / "schema" / f"{kind.lower()}.schema.json"
    try:
        return Draft202012Validator(json.loads(path.read_text()))
    except OSError:
        raise CompatgateError(f"{path} is missing", hint="reinstall compatgate") from None


def _translate(raw: RawDocument, error: Any) -> Iterator[DocumentProblem]:
    path: FieldPath = tuple(error.absolute_path)
    value, wanted = error.instance, error.validator_value
    known = list(error.schema.get("properties", ())) if isinstance(error.schema, dict) else []
    match error.validator:
        case "required":
            absent = (name for name in wanted if name not in value)
            missing = next((name for name in absent if f"'{name}'" in error.message), "a key")
            hint = f"needed here: {', '.join(wanted)}"
            yield raw.problem(path, f"{missing} is missing", hint=hint)
        case "additionalProperties":
            for key in (k for k in value if k not in known):
                near = near_names(key, known)
                hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
                yield raw.problem((*path, key), "unknown key", hint=hint)
        case "type":
            yield _type_problem(raw, path, error)
        case "enum":
            hint = f"one of {', '.join(wanted)}"
            unknown = _pattern_problem(raw, path, value, "is not known", hint)
            yield _unquoted_problem(raw, path, value) or unknown
        case "const":
            yield _pattern_problem(raw, path, value, "is not supported", f"write {wanted}")
        case "pattern" | "propertyNames":
            pattern = error.validator_value
            if error.parent is not None and error.parent.validator == "propertyNames":
                path = (*path, str(error.instance))
            what, hint = _PATTERNS.get(pattern, (f"does not match {pattern}", ""))
            yield _pattern_problem(raw, path, error.instance, what, hint)
        case "minItems" | "minProperties" | "minLength":
            yield raw.problem(path, "must not be empty")
        case "minimum" | "maximum":
            side = "least" if error.validator == "minimum" else "most"
            yield raw.problem(path, f"must be at {side} {wanted}", value=value)
        case "exclusiveMinimum":
            yield raw.problem(path, f"must be above {wanted}", value=value)
        case "maxItems" | "maxProperties":
            yield raw.problem(path, f"has more than {wanted} items")
        case "maxLength":
            yield raw.problem(path, f"is longer than {wanted} characters")
        case _:
            what = f"has the wrong form: {quote_error(error.message)}"
            yield raw.problem(path, what, value=value)


def _pattern_problem(
    raw: RawDocument, path: FieldPath, value: Any, what: str, hint: str
) -> DocumentProblem:
    shown = f"{value!r} " if len(str(value)) <= 80 else ""
    return raw.problem(path, f"{shown}{what}", value=value, hint=hint)


def _type_problem(raw: RawDocument, path: FieldPath, error: Any) -> DocumentProblem:
    wanted, value = str(error.validator_value), error.instance
    if value is None:
        return raw.problem(path, "is empty", hint=_TYPES[wanted].removeprefix("must be "))
    if wanted == "string" and (problem := _unquoted_problem(raw, path, value)):
        pattern = error.schema.get("pattern")
        if pattern in _PATTERNS and not re.search(pattern, raw.written(path) or str(value)):
            what, hint = _PATTERNS[pattern]  # quotes alone would not make it right
            return raw.problem(path, f"{value} {what}", value=value, hint=hint)
        return problem
    hint = f"write [{value}]" if wanted == "array" and isinstance(value, str) else ""
    return raw.problem(path, _TYPES[wanted], value=value, hint=hint)


def _unquoted_problem(raw: RawDocument, path: FieldPath, value: Any) -> DocumentProblem | None:
    """Report a number or boolean instead of text: YAML reads ``12.10`` without quotes as 12.1."""
    if isinstance(value, list | dict | str) or value is None:
        return None
    written = raw.written(path)
    if written is None:
        hint = f'write it in quotes, like "{value}"'
        return raw.problem(path, _TYPES["string"], value=value, hint=hint)
    reading = str(value).lower() if isinstance(value, bool) else f"the number {value}"
    what = f"{written} must be in quotes; YAML reads it as {reading}"
    return raw.problem(path, what, value=value, hint=f'write "{written}"')
