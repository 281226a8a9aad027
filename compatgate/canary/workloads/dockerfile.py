"""The little that is asked of a Dockerfile: its arguments and the images it starts from."""

from __future__ import annotations

import re

_ARG = re.compile(r"^\s*ARG\s+(.+)$", re.IGNORECASE | re.MULTILINE)
_FROM = re.compile(
    r"^\s*FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?\s*$", re.IGNORECASE | re.MULTILINE
)
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::-([^}]*))?\}|(\w+))")


def arguments(text: str) -> dict[str, str | None]:
    """Names of the build arguments with their defaults, None where there is none."""
    found: dict[str, str | None] = {}
    for line in _ARG.findall(text):
        for part in line.split():
            name, equals, default = part.partition("=")
            found.setdefault(name, default.strip("\"'") if equals else None)
    return found


def images(text: str) -> list[str]:
    """Images that the stages start from, arguments replaced by their defaults.

    Stages of the file itself and ``scratch`` are left out, and so is an image that only an
    argument without a default names.
    """
    known = arguments(text)
    stages = {"scratch"}
    found: list[str] = []
    for image, stage in _FROM.findall(text):
        named = _VARIABLE.sub(lambda m: known.get(m[1] or m[3]) or m[2] or "", image)
        if named and named.lower() not in stages and named not in found:
            found.append(named)
        if stage:
            stages.add(stage.lower())
    return found
