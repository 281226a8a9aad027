"""Check documents by their JSON Schemas, and explain each mistake."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from compatgate.documents import quantities, specs
from compatgate.documents.sources import DocumentProblem, FieldPath
from compatgate.documents.text import RawDocument
from compatgate.errors import CompatgateError
from compatgate.resources import matrix_dir

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


def schema(kind: str) -> dict[str, Any]:
    """Return the JSON Schema of a kind, as shipped."""
    loaded: dict[str, Any] = _validator(kind).schema
    return loaded


def explain(raw: RawDocument, kind: str) -> Iterator[DocumentProblem]:
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
        raise CompatgateError(f"{path} is missing", hint="install compatgate again") from None


def _translate(raw: RawDocument, error: Any) -> Iterator[DocumentProblem]:
    path: FieldPath = tuple(error.absolute_path)
    value, wanted = error.instance, error.validator_value
    known = list(error.schema.get("properties", ())) if isinstance(error.schema, dict) else []
    match error.validator:
        case "required":
            missing = error.message.split("'")[1]
            yield raw.problem(path, f"{missing} is missing", hint=_needed(wanted))
        case "additionalProperties":
            for key in (k for k in value if k not in known):
                yield raw.problem((*path, key), "unknown key", hint=_did_you_mean(key, known))
        case "type":
            yield _wrong_type(raw, path, error)
        case "enum":
            hint = f"one of {', '.join(wanted)}"
            yield _mistyped(raw, path, value) or _is_not(raw, path, value, "is not known", hint)
        case "const":
            yield _is_not(raw, path, value, "is not supported", f"write {wanted}")
        case "pattern" | "propertyNames":
            yield _pattern(raw, path, error)
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
            yield raw.problem(path, error.message, value=value)


def _pattern(raw: RawDocument, path: FieldPath, error: Any) -> DocumentProblem:
    pattern = error.validator_value
    if error.parent is not None and error.parent.validator == "propertyNames":
        path = (*path, str(error.instance))
    what, hint = _PATTERNS.get(pattern, (f"does not match {pattern}", ""))
    return _is_not(raw, path, error.instance, what, hint)


def _is_not(raw: RawDocument, path: FieldPath, value: Any, what: str, hint: str) -> DocumentProblem:
    shown = f"{value!r} " if len(str(value)) <= 80 else ""
    return raw.problem(path, f"{shown}{what}", value=value, hint=hint)


def _wrong_type(raw: RawDocument, path: FieldPath, error: Any) -> DocumentProblem:
    wanted, value = str(error.validator_value), error.instance
    if value is None:
        return raw.problem(path, "is empty", hint=_TYPES[wanted].removeprefix("must be "))
    if wanted == "string" and (problem := _mistyped(raw, path, value)):
        pattern = error.schema.get("pattern")
        if pattern in _PATTERNS and not re.search(pattern, raw.written(path) or str(value)):
            what, hint = _PATTERNS[pattern]  # quotes alone would not make it right
            return raw.problem(path, f"{value} {what}", value=value, hint=hint)
        return problem
    hint = f"write [{value}]" if wanted == "array" and isinstance(value, str) else ""
    return raw.problem(path, _TYPES[wanted], value=value, hint=hint)


def _mistyped(raw: RawDocument, path: FieldPath, value: Any) -> DocumentProblem | None:
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


def _needed(required: list[str]) -> str:
    return f"needed here: {', '.join(required)}"


def _did_you_mean(key: str, known: list[str]) -> str:
    near = get_close_matches(key, known, n=1)
    return f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
