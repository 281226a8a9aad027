"""Files as one text, which is imported as a whole; mistakes are told by file and line again."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence

from msgspec import Struct

from compatgate.documents.nodes import as_yaml, read_nodes
from compatgate.documents.problems import DocumentProblem, Problems
from compatgate.documents.sources import Source
from compatgate.errors import CompatgateError, ManyProblems

FILE = "<files>"
"""What the gate calls the text."""
_PLACE = re.compile(re.escape(FILE) + r":(\d+)")
_BEGUN = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\n)*(---(?:\s|$)|%)")
"""A text that begins its first document itself."""


class Together(Struct, frozen=True):
    """Several texts as one.

    Attributes:
        text: a YAML stream.
        files: by name, in order.
        starts: the line of each in the text, from 1.
    """

    text: str
    files: tuple[str, ...]
    starts: tuple[int, ...]
    file: str = FILE

    def placed(self, error: ManyProblems) -> ManyProblems:
        """The same mistakes, by the files and lines that they stand in."""
        return ManyProblems(error.problem, [self._placed(problem) for problem in error.problems])

    def _placed(self, problem: CompatgateError) -> CompatgateError:
        if not isinstance(problem, DocumentProblem) or problem.file != FILE:
            return problem
        file, line = self.place(problem.line or 1)
        moved = DocumentProblem(
            self._told(problem.problem),
            file=file,
            line=line if problem.line else None,
            document=problem.document,
            value=problem.value,
            hint=self._told(problem.hint),
        )
        moved.field = problem.field
        return moved

    def place(self, line: int) -> tuple[str, int]:
        """File and line of a line of the text."""
        index = bisect_right(self.starts, line) - 1
        return self.files[index], line - self.starts[index] + 1

    def _told(self, text: str) -> str:
        return _PLACE.sub(lambda m: ":".join(map(str, self.place(int(m[1])))), text)


def join(sources: Sequence[Source]) -> Together:
    """Several files as one text; each begins with a document of its own.

    Raises:
        ManyProblems: mistakes of syntax, which would hide the files that follow.
    """
    _check(sources)
    parts: list[str] = []
    starts: list[int] = []
    line = 1
    for source in sources:
        text = as_yaml(source.text)
        if parts:
            between = "\n...\n" if _BEGUN.match(text) else "\n...\n---\n"
            parts.append(between)
            line += between.count("\n")
        starts.append(line)
        parts.append(text)
        line += text.count("\n")
    return Together("".join(parts), tuple(source.file for source in sources), tuple(starts))


def _check(sources: Sequence[Source]) -> None:
    problems = Problems()
    for source in sources:
        for _ in read_nodes(source, problems):
            pass
    problems.raise_if_any()
