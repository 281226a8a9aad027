"""Pins of framework builds, from what package metadata and documentation write."""

from __future__ import annotations

import re

from compatgate.catalog.build.read import version
from compatgate.core.facts import Pin, Source
from compatgate.core.versions import Version

_FLOOR = re.compile(r">=\s*([\d.]+)")


def exact(component: str, text: str, source: Source, *, places: int = 3) -> Pin:
    """A build that was made and tested with one version (``==9.1.0.70``)."""
    plain = text.strip().removeprefix("==")
    floor = version(component, plain)
    return Pin(component, f"=={plain}", floor, True, places, True, source)


def ranged(component: str, text: str, source: Source) -> Pin:
    """A range as metadata writes it (``<10.0,>=9.8``): the floor counts as far as it is stated."""
    clauses = sorted(part.strip() for part in text.split(","))
    spec = ",".join(reversed(clauses))
    floor = lowest(component, text)
    places = min(len(floor.parts), 3) if floor else 3
    return Pin(component, spec, floor, False, places, True, source)


def requirement(component: str, text: str, source: Source) -> Pin:
    """Either of the two, whichever the metadata states."""
    return (exact if text.strip().startswith("==") else ranged)(component, text, source)


def major(component: str, number: int, source: Source, *, optional: bool = False) -> Pin:
    """Any release of a major."""
    return Pin(component, f"{number}.*", None, False, 1, True, source, optional)


def documented(component: str, minors: list[str], source: Source) -> Pin:
    """Minors that a project names as tested, of a component that it can do without."""
    keys = sorted(tuple(int(p) for p in text.split(".")) for text in minors)
    low, high = keys[0], keys[-1]
    spec = f">={low[0]}.{low[1]},<{high[0]}.{high[1] + 1}"
    return Pin(component, spec, None, False, 2, False, source, optional=True)


def lowest(component: str, text: str) -> Version | None:
    """The lower bound of a range."""
    match = _FLOOR.search(text)
    return version(component, match[1]) if match else None
