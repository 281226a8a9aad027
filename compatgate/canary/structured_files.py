"""Read TOML files into typed structs; report each mistake with file, line, field and value."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from compatgate.documents import validation
from compatgate.documents.sources import DocumentProblem
from compatgate.documents.text import RawDocument
from compatgate.errors import BadInput, ManyProblems, NotFound, explain_form, quote_error

T = TypeVar("T")
_MAX_BYTES = 1 << 20


def read_toml(path: Path, kind: str, shape: type[T]) -> tuple[T, RawDocument]:
    """Read a TOML file into a struct.

    ``kind`` names the schema, ``matrix/schema/KIND.schema.json``; the raw document locates later
    problems in the file.
    """
    raw = RawDocument(str(path), _parse(path))
    try:
        return msgspec.convert(raw.value, shape), raw
    except msgspec.ValidationError as error:
        result = list(validation.explain_mistakes(raw, kind)) or [
            raw.problem((), explain_form(error, "the document"))
        ]
        raise make_file_error(path, result) from None


def make_file_error(path: Path, problems: list[DocumentProblem]) -> ManyProblems:
    """Return the error for a file with mistakes."""
    count = f"{len(problems)} problems" if len(problems) > 1 else "a problem"
    return ManyProblems(f"{count} in {path.name}", problems)


def _parse(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        raise NotFound(f"{path} does not exist", field="file", value=str(path)) from None
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}", value=str(path)) from None
    if len(content) > _MAX_BYTES:
        raise BadInput(f"{path} is larger than the limit of 1 MiB", value=str(path))
    try:
        return tomllib.loads(content.decode(), parse_float=_check_finite)
    except UnicodeDecodeError as error:
        raise _syntax_error(path, f"not UTF-8 at byte {error.start}") from None
    except tomllib.TOMLDecodeError as error:
        raise _syntax_error(path, quote_error(error)) from None
    except RecursionError:
        raise _syntax_error(path, "nested too deeply") from None


def _check_finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")) or value != value:
        raise tomllib.TOMLDecodeError(f"{text} is not a finite number")
    return value


def _syntax_error(path: Path, what: str) -> ManyProblems:
    return make_file_error(path, [DocumentProblem(f"not valid TOML: {what}", file=str(path))])
