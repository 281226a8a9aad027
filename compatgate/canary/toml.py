"""TOML files into typed structs, every mistake with file, field and value."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from compatgate.documents import schemas
from compatgate.documents.nodes import RawDocument
from compatgate.documents.problems import DocumentProblem
from compatgate.errors import BadInput, ManyProblems, NotFound

T = TypeVar("T")
_LARGEST = 1 << 20


def read_toml(path: Path, kind: str, shape: type[T]) -> tuple[T, RawDocument]:
    """Read a file.

    Args:
        path: of the file.
        kind: of its schema, ``matrix/schema/KIND.schema.json``.
        shape: the struct that accepts what the schema accepts.

    Returns:
        The struct, and the plain values, which name the file in later problems.

    Raises:
        NotFound: there is no such file.
        ManyProblems: it is no TOML, or has not the shape.
    """
    raw = RawDocument(str(path), _parse(path))
    try:
        return msgspec.convert(raw.value, shape), raw
    except msgspec.ValidationError as error:
        found = list(schemas.explain(raw, kind)) or [raw.problem((), str(error))]
        raise refused(path, found) from None


def refused(path: Path, problems: list[DocumentProblem]) -> ManyProblems:
    """The error for a file with mistakes."""
    count = f"{len(problems)} problems" if len(problems) > 1 else "a problem"
    return ManyProblems(f"{count} in {path.name}", problems)


def _parse(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
    except FileNotFoundError:
        raise NotFound(f"there is no {path}", field="file", value=str(path)) from None
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}", value=str(path)) from None
    if len(content) > _LARGEST:
        raise BadInput(f"{path} is larger than 1 MiB", value=str(path))
    try:
        return tomllib.loads(content.decode(), parse_float=_finite)
    except UnicodeDecodeError as error:
        raise _not_toml(path, f"not UTF-8 at byte {error.start}") from None
    except tomllib.TOMLDecodeError as error:
        raise _not_toml(path, str(error)) from None
    except RecursionError:
        raise _not_toml(path, "nested too deeply") from None


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")) or value != value:
        raise tomllib.TOMLDecodeError(f"{text} is not a finite number")
    return value


def _not_toml(path: Path, what: str) -> ManyProblems:
    return refused(path, [DocumentProblem(f"not valid TOML: {what}", file=str(path))])
