"""Mistakes in documents, each with the place where it stands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from compatgate.errors import BadInput, ManyProblems

_ENOUGH = 1000
Path = tuple[str | int, ...]
"""A place in a document: ``("spec", "pools", 0, "gpu")``."""


def dotted(path: Path) -> str:
    """``spec.pools[0].gpu``; a key with dots of its own is bracketed."""
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

    Args:
        problem: as `CompatgateError`; so are ``value`` and ``hint``.
        path: place within the document; ``field`` is its dotted form.
        file: name of the file; None when the document came as a request body.
        line: line in the file, from 1.
        document: ``Entry torch24-cu124``, as far as it is known.
    """

    slug = "document-problem"

    def __init__(
        self,
        problem: str,
        *,
        path: Path = (),
        file: str | None = None,
        line: int | None = None,
        document: str = "",
        value: object = None,
        hint: str = "",
    ) -> None:
        super().__init__(problem, field=dotted(path) or None, value=value, hint=hint)
        self.file = file
        self.line = line
        self.document = document

    @property
    def where(self) -> str:
        """``matrix.yaml:12``; empty for a request body."""
        return ":".join(str(part) for part in (self.file, self.line) if part is not None)

    @property
    def detail(self) -> str:
        """Place, field, problem and hint in one line."""
        where = f"{self.where}: " if self.where else ""
        return where + super().detail

    def to_json(self) -> dict[str, Any]:
        """The problem as a member of a problem+json answer or of ``--format json``."""
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
    """Gathers mistakes, so that all are reported together."""

    def __init__(self) -> None:
        self._found: list[DocumentProblem] = []

    def add(self, problem: DocumentProblem) -> None:
        """Remember a mistake; the same sentence about the same place once."""
        seen = {(p.where, p.field, p.problem) for p in self._found[-50:]}
        if (problem.where, problem.field, problem.problem) not in seen:
            self._found.append(problem)

    @property
    def enough(self) -> bool:
        """Whether more would help nobody."""
        return len(self._found) >= _ENOUGH

    def raise_if_any(self) -> None:
        """End here when there were mistakes.

        Raises:
            ManyProblems: all of them, in the order of files and lines.
        """
        if self._found:
            count = len(self._found)
            noun = "1 problem" if count == 1 else f"{count} problems"
            noun = f"{noun} and perhaps more" if self.enough else noun
            raise ManyProblems(f"{noun}; nothing was changed", list(self))

    def __iter__(self) -> Iterator[DocumentProblem]:
        files = {p.file: index for index, p in reversed(list(enumerate(self._found)))}
        return iter(sorted(self._found, key=lambda p: (files[p.file], p.line or 0)))

    def __len__(self) -> int:
        return len(self._found)
