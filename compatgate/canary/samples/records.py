"""Files of JSON lines that a person may edit: every line an object, every mistake with its line."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from compatgate.documents import schemas
from compatgate.documents.nodes import RawDocument
from compatgate.documents.problems import DocumentProblem, Problems
from compatgate.documents.sources import Source

T = TypeVar("T")


class Record(Struct, frozen=True):
    """A line that is an object with a ``type``."""

    file: str
    line: int
    body: dict[str, Any]

    @property
    def says(self) -> str:
        """What it says that it is."""
        return str(self.body.get("type"))

    def problem(self, *path: str | int, what: str, hint: str = "") -> DocumentProblem:
        """A mistake in it."""
        raw = RawDocument(self.file, self.body)
        return self._here(raw.problem(path, what, hint=hint))

    def read(self, shape: type[T], kind: str, problems: Problems) -> T | None:
        """The line as a struct; None where it has not the shape, and the schema has said why."""
        try:
            return msgspec.convert(self.body, shape)
        except msgspec.ValidationError as error:
            raw = RawDocument(self.file, self.body)
            for found in list(schemas.explain(raw, kind)) or [raw.problem((), str(error))]:
                problems.add(self._here(found))
            return None

    def _here(self, problem: DocumentProblem) -> DocumentProblem:
        problem.line = self.line
        return problem


def read_records(source: Source, problems: Problems) -> list[Record]:
    """The lines of a text, empty ones left out."""
    found: list[Record] = []
    for number, line in enumerate(source.text.split("\n"), 1):
        if not line.strip():
            continue
        if (body := _object(line)) is not None and isinstance(body.get("type"), str):
            found.append(Record(source.file, number, body))
        else:
            what, hint = "is no JSON object with a type", '{"type": "...", ...}, one a line'
            problem = DocumentProblem(what, file=source.file, line=number, hint=hint)
            problems.add(problem)
        if problems.enough:
            break
    if not found and not len(problems):
        what = "the file is empty"
        problems.add(DocumentProblem(what, file=source.file, line=1))
    return found


def _object(line: str) -> dict[str, Any] | None:
    try:
        body = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return body if isinstance(body, dict) else None
