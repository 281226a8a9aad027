"""Forms of verdicts: one file each, one interface, imported when chosen.

A form is a module with ``render(answers: Sequence[Answer], view: View) -> str``: verdicts, in the
JSON form of ``POST /gate``, as one text without a final newline. Most often there is one; a check
of several lockfiles has one for each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from msgspec import Struct

Json = dict[str, Any]

FORMATS: dict[str, str] = {
    "text": "compatgate.cli.formats.text",
    "json": "compatgate.cli.formats.json",
    "sarif": "compatgate.cli.formats.sarif",
    "junit": "compatgate.cli.formats.junit",
    "github": "compatgate.cli.formats.github",
    "gitlab-codequality": "compatgate.cli.formats.gitlab_codequality",
    "markdown": "compatgate.cli.formats.markdown",
    "dotenv": "compatgate.cli.formats.dotenv",
}
"""Name, as in ``--format``, to module."""


class Place(Struct, frozen=True):
    """A line of a file.

    Attributes:
        path: as it was given.
        line: from 1; the first one stands for the whole file.
    """

    path: str
    line: int = 1


class Answer(Struct, frozen=True):
    """A verdict, and what only the one who asked knows of it.

    Attributes:
        verdict: in the form of ``POST /gate``.
        file: what was read, where several were: it tells the answers apart.
        places: component to where it is locked.
        at: where to show a finding whose component has no place; None: nowhere.
        link: address of the verdict; empty where no server keeps it.
    """

    verdict: Json
    file: str = ""
    places: Mapping[str, Place] = {}
    at: Place | None = None
    link: str = ""

    def place(self, finding: Json) -> Place | None:
        """Where a finding is to be shown."""
        return self.places.get(finding["component"]) or self.at


class View(Struct, frozen=True):
    """How people will look at it.

    Attributes:
        width: columns.
        colour: whether to colour.
    """

    width: int = 100
    colour: bool = False


def render(name: str, verdict: Json, view: View | None = None) -> str:
    """A verdict in the form of that name."""
    return render_all(name, [Answer(verdict)], view)


def render_all(name: str, answers: Sequence[Answer], view: View | None = None) -> str:
    """Verdicts in the form of that name."""
    text: str = import_module(FORMATS[name]).render(answers, view or View())
    return text
