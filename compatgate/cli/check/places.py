"""Where in a lockfile each component stands, so that a review shows a finding at its line."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from compatgate.cli.formats import Place

if TYPE_CHECKING:
    from compatgate.discovery.observed import Observation


def places_of(
    path: str, name: str, data: bytes, observations: Iterable[Observation]
) -> dict[str, Place]:
    """The place of each component.

    Args:
        path: of the lockfile.
        name: of the file, as origins write it.
        data: its content.
        observations: whose origin is ``requirements.txt:3`` or ``uv.lock: torch``.

    Returns:
        Component to place; the first line of the file where the component's own is not found.
    """
    text = data.decode("utf-8", "replace")
    places: dict[str, Place] = {}
    for seen in observations:
        if seen.component not in places:
            places[seen.component] = _place(path, name, text, seen.origin)
    return places


def _place(path: str, name: str, text: str, origin: str) -> Place:
    head, _, package = origin.partition(": ")
    file, colon, number = head.rpartition(":")
    line = int(number) if colon and number.isdecimal() else 0
    file = file if line else head
    if file != name:  # one that this one includes
        return Place(os.path.join(os.path.dirname(path), file), max(line, 1))
    return Place(path, line or _line_of(package.rpartition(" ")[2], text))


def _line_of(package: str, text: str) -> int:
    """The line that names the package: as a name, or else anywhere as a whole word."""
    word = re.escape(package)
    for pattern in (
        rf"^[ \t\-\[{{]*name[ \t]*[:=][ \t]*[\"']?{word}[\"']?[ \t,]*$",
        rf"(?<![\w\-]){word}(?!\w)",
    ):
        if package and (match := re.search(pattern, text, re.MULTILINE)):
            return text.count("\n", 0, match.start()) + 1
    return 1


def stated_place(text: str) -> Place:
    """Read ``Dockerfile`` or ``Dockerfile:3`` of ``--show-at``."""
    path, colon, number = text.rpartition(":")
    if path and colon and number.isdecimal() and int(number) > 0:
        return Place(path, int(number))
    return Place(text)
