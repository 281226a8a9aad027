"""What a target is, and samples of files by their names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from compatgate.catalog import read_source
from compatgate.discovery.signals import Signals, read_signals

TESTS = Path(__file__).parents[2]
DISCOVERY = TESTS / "unit" / "discovery"
_SMALL = 60_000
"""Bytes of the largest sample of a text format: damage in a small one is met sooner."""


class Target(NamedTuple):
    """A reader, and files that it reads."""

    run: Callable[[bytes], object]
    samples: Sequence[bytes]


@cache
def published() -> Any:
    return read_source("image_signals", overlays=[])


@cache
def signals() -> Signals:
    return read_signals(published())


def by_name(folder: Path, read: Callable[[str, bytes], object]) -> dict[str, Target]:
    """A target for each file name, as the name decides the format; the smaller files only."""
    found: dict[str, list[bytes]] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix != ".md":
            found.setdefault(path.name, []).append(path.read_bytes())
    return {
        name: Target(
            partial(read, name), [d for d in data if len(d) <= _SMALL] or [min(data, key=len)]
        )
        for name, data in found.items()
    }
