"""Read documents from files, folders and standard input, and name mistakes by their place.

A mistake names its file and field, and where a name was nearly right, the right one.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from compatgate.core.performance import near_names
from compatgate.errors import BadInput, ManyProblems, quote_error

SUFFIXES = (".yaml", ".yml", ".json")
MAX_FILE_SIZE = 256 * 1024 * 1024
"""Bytes; 100,000 entries take some 30 MB."""


class Source(Struct, frozen=True):
    """A text, its name in messages, and how many values and brackets it may hold, if bounded."""

    file: str
    text: str
    most_values: int | None = None


def read_paths(paths: Iterable[str | Path]) -> list[Source]:
    """Read files, all YAML and JSON files below folders, and standard input (``-``)."""
    sources = [source for path in paths for source in _read(str(path))]
    seen: set[str] = set()
    return [s for s in sources if not (s.file in seen or seen.add(s.file))]  # type: ignore[func-returns-value]


def _read(path: str) -> list[Source]:
    if path == "-":
        return [Source("<stdin>", _decode("<stdin>", sys.stdin.buffer.read(MAX_FILE_SIZE + 1)))]
    place = Path(path)
    if not place.is_dir():
        return [_read_file(place)]
    files = sorted(
        p
        for p in place.rglob("*")
        if p.suffix in SUFFIXES
        and p.is_file()
        and not any(part.startswith(".") for part in p.relative_to(place).parts)
    )
    if not files:
        hint = f"documents end in {', '.join(SUFFIXES)}"
        raise BadInput(f"no documents below {path}", field="file", value=path, hint=hint)
    return [_read_file(p) for p in files]


def _read_file(path: Path) -> Source:
    try:
        with path.open("rb") as stream:
            return Source(str(path), _decode(str(path), stream.read(MAX_FILE_SIZE + 1)))
    except OSError as error:
        reason = quote_error(error)
        raise BadInput(f"cannot read {path}: {reason}", field="file", value=str(path)) from None


def _decode(name: str, content: bytes) -> str:
    if len(content) > MAX_FILE_SIZE:
        raise BadInput(f"{name} is larger than {MAX_FILE_SIZE} bytes", field="file", value=name)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BadInput(f"{name}:{line}: not UTF-8 text", field="file", value=name) from None


MAX_PROBLEMS = 200
MAX_EXPLAINED = 10_000
"""Values of all wrong documents that are compared with a schema: each takes microseconds."""
FieldPath = tuple[str | int, ...]
"""A place in a document: ``("spec", "pools", 0, "gpu")``."""


def format_path(path: FieldPath) -> str:
    """Format a path as ``spec.pools[0].gpu``; a key with dots is bracketed."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif "." in step or "[" in step or not step:
            text += f'["{step}"]'
        else:
            text += f".{step}" if text else step
    return text


class DocumentProblem(BadInput):
    """One mistake in a document.

    ``path`` is the place within the document, and ``field`` its dotted form. ``file`` is None for a
    request body; lines count from 1.
    """

    slug = "document-problem"

    def __init__(
        self,
        problem: str,
        *,
        path: FieldPath = (),
        file: str | None = None,
        line: int | None = None,
        document: str = "",
        value: object = None,
        hint: str = "",
    ) -> None:
        super().__init__(problem, field=format_path(path) or None, value=value, hint=hint)
        self.file = file
        self.line = line
        self.document = document

    @property
    def where(self) -> str:
        """Return the file and line, ``matrix.yaml:12``; empty for a request body."""
        return ":".join(str(part) for part in (self.file, self.line) if part is not None)

    @property
    def detail(self) -> str:
        """Return place, field, problem and hint in one line."""
        where = f"{self.where}: " if self.where else ""
        return where + super().detail

    def to_json(self) -> dict[str, Any]:
        """Return the problem as a member of a problem+json answer or of ``--format json``."""
        value = self.value if isinstance(self.value, str | int | float | bool) else None
        return {
            "file": self.file,
            "line": self.line,
            "document": self.document or None,
            "field": self.field,
            "problem": self.problem,
            "value": value,
            "hint": self.hint or None,
        }


class Problems:
    """Collects mistakes, so that all are reported together."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str | None, str], DocumentProblem] = {}
        self._explained = 0

    def add(self, problem: DocumentProblem) -> None:
        """Add a mistake, once for the same place and text."""
        self._found.setdefault((problem.where, problem.field, problem.problem), problem)

    def extend(self, problems: Iterable[DocumentProblem]) -> None:
        """Add mistakes until there are enough; further ones are not searched."""
        for problem in problems:
            self.add(problem)
            if self.enough:
                return

    def may_explain(self, values: int) -> bool:
        """Return whether the mistakes of a document with so many values may be searched."""
        self._explained += values
        return self._explained <= MAX_EXPLAINED

    @property
    def enough(self) -> bool:
        """Return whether there are as many mistakes as are reported at once."""
        return len(self._found) >= MAX_PROBLEMS

    def raise_if_any(self) -> None:
        """Raise an error if there are mistakes."""
        if self._found:
            count = len(self._found)
            noun = "1 problem" if count == 1 else f"{count} problems"
            noun = f"{noun} and perhaps more" if self.enough else noun
            raise ManyProblems(f"{noun}; nothing was changed", list(self))

    def __iter__(self) -> Iterator[DocumentProblem]:
        found = list(self._found.values())
        files = {p.file: index for index, p in reversed(list(enumerate(found)))}
        return iter(sorted(found, key=lambda p: (files[p.file], p.line or 0)))

    def __len__(self) -> int:
        return len(self._found)


_MAX_NAMES = 2000
"""Names that a hint lists some of; sorting more takes too long."""


def suggest_name(name: str, known: Collection[str]) -> str:
    """Return a hint for a missing name: similar names, or a few of the known names."""
    if not known:
        return "none exist yet"
    if len(known) > _MAX_NAMES:
        return ""
    if near := near_names(name, known, most=2):
        return f"did you mean {' or '.join(near)}?"
    few = sorted(known)[:8]
    more = f" and {len(known) - len(few)} more" if len(known) > len(few) else ""
    return f"known: {', '.join(few)}{more}"
