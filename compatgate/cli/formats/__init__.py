"""Forms of a verdict: one file each, one interface, imported when chosen.

A form is a module with ``render(verdict: Json, view: View) -> str``: the verdict, in the JSON form
of ``POST /gate``, as text without a final newline.
"""

from __future__ import annotations

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
    "markdown": "compatgate.cli.formats.markdown",
}
"""Name, as in ``--format``, to module."""


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
    text: str = import_module(FORMATS[name]).render(verdict, view or View())
    return text
