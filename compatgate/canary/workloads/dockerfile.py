"""Read the little that is asked of a workload's Dockerfile: its arguments, images and downloads."""

from __future__ import annotations

import re
from collections.abc import Iterator

from compatgate.canary.workload import Workload

BASE = "BASE"
"""The argument that once named the image under test; nothing is built on that image."""
_ARG = re.compile(r"^\s*ARG\s+(.+)$", re.IGNORECASE | re.MULTILINE)
_FROM = re.compile(
    r"^\s*FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?\s*$", re.IGNORECASE | re.MULTILINE
)
_ADD = re.compile(r"^\s*ADD\s(.*)$", re.IGNORECASE | re.MULTILINE)
_SOURCE = re.compile(r"(?:[a-z]+://|git@)[^\s\"',\]]+", re.IGNORECASE)
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::-([^}]*))?\}|(\w+))")


def build_arguments(text: str) -> dict[str, str | None]:
    """Return the names of the build arguments with their defaults, None where there is none."""
    found: dict[str, str | None] = {}
    for line in _ARG.findall(text):
        for part in line.split():
            name, equals, default = part.partition("=")
            found.setdefault(name, default.strip("\"'") if equals else None)
    return found


def base_images(text: str) -> list[str]:
    """Return images that the stages start from, arguments replaced by their defaults.

    Stages of the file itself and ``scratch`` are left out, and so is an image that only an
    argument without a default names.
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
    """Addresses that ``ADD`` fetches; the engine does that itself, whatever network steps have."""
    joined = re.sub(r"\\\r?\n", " ", text)
    return [source for line in _ADD.findall(joined) for source in _SOURCE.findall(line)]


def is_self_contained(text: str) -> bool:
    """Return whether the file itself says what each of its stages starts from.

    It does not where only an argument without a default, ``BASE``, would name an image.
    """
    return all(named for named, _ in _starts(text))


def _starts(text: str) -> Iterator[tuple[str, str]]:
    """What each stage starts from, "" where nothing names it, and what the stage is called."""
    known = build_arguments(text)
    for image, stage in _FROM.findall(text):
        yield _VARIABLE.sub(lambda m: known.get(m[1] or m[3]) or m[2] or "", image), stage


def brings_image(workload: Workload) -> bool:
    """Whether it names an image, or its ``Dockerfile`` starts from one without being told which.

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
