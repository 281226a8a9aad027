"""Read arguments, images and downloads from a workload's Dockerfile."""

from __future__ import annotations

import re
from collections.abc import Iterator

from compatgate.canary.workload import Workload

BASE = "BASE"
"""Argument that once named the image under test; nothing is built on that image."""
_ARG = re.compile(r"^\s*ARG\s+(.+)$", re.IGNORECASE | re.MULTILINE)
_FROM = re.compile(
    r"^\s*FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?\s*$", re.IGNORECASE | re.MULTILINE
)
_ADD = re.compile(r"^\s*ADD\s(.*)$", re.IGNORECASE | re.MULTILINE)
_SOURCE = re.compile(r"(?:[a-z]+://|git@)[^\s\"',\]]+", re.IGNORECASE)
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::-([^}]*))?\}|(\w+))")


def build_arguments(text: str) -> dict[str, str | None]:
    """Return the build arguments with their defaults; None if there is no default."""
    found: dict[str, str | None] = {}
    for line in _ARG.findall(text):
        for part in line.split():
            name, equals, default = part.partition("=")
            found.setdefault(name, default.strip("\"'") if equals else None)
    return found


def base_images(text: str) -> list[str]:
    """Return the base images of the stages, with arguments replaced by their defaults.

    Leave out stages of the file itself, ``scratch``, and images that only an argument without a
    default names.
    """
    stages = {"scratch"}
    found: list[str] = []
    for named, stage in _starts(text):
        if named and named.lower() not in stages and named not in found:
            found.append(named)
        if stage:
            stages.add(stage.lower())
    return found


def downloads(text: str) -> list[str]:
    """Return the addresses that ``ADD`` fetches, for which the engine always has a network."""
    joined = re.sub(r"\\\r?\n", " ", text)
    return [source for line in _ADD.findall(joined) for source in _SOURCE.findall(line)]


def is_self_contained(text: str) -> bool:
    """Return whether the file itself names the base image of each stage.

    It does not if only an argument without a default would name an image.
    """
    return all(named for named, _ in _starts(text))


def _starts(text: str) -> Iterator[tuple[str, str]]:
    """Yield the base image of each stage, "" if it is not named, and the stage's name."""
    known = build_arguments(text)
    for image, stage in _FROM.findall(text):
        yield _VARIABLE.sub(lambda m: known.get(m[1] or m[3]) or m[2] or "", image), stage


def brings_image(workload: Workload) -> bool:
    """Return whether the workload names an image, or its ``Dockerfile`` names its base image.

    A folder without a readable ``Dockerfile`` is another mistake, and counts as one that does.
    """
    own = workload.image
    if own.reference:
        return True
    if own.context is None:
        return False
    if workload.folder is None:
        return True
    try:
        text = (workload.folder / own.context / "Dockerfile").read_text(errors="replace")
    except OSError:
        return True
    return is_self_contained(text)
