"""Pins of framework builds, from what package metadata and documentation write."""

from __future__ import annotations

import re

from compatgate.catalog.build.read import Record, version
from compatgate.core.facts import Pin, Source

_FLOOR = re.compile(r">=\s*([\d.]+)")
_MAJOR = re.compile(r"\d+\.\*")


def read(component: str, pin: Record, source: Source) -> Pin:
    """Read a pin; the form of its ``spec`` says how strictly it is meant.

    ``==9.1.0.70``: made and tested with this version. ``9.*``: any release of the major.
    ``>=9.8,<10``: a range. Any of them may be ``optional``: the build can do without.
    """
    spec, optional = str(pin["spec"]).replace(" ", ""), bool(pin.get("optional"))
    if spec.startswith("=="):
        floor = version(component, spec.removeprefix("=="))
        return Pin(component, spec, floor, True, 3, True, source, optional)
    if _MAJOR.fullmatch(spec):
        return Pin(component, spec, None, False, 1, True, source, optional)
    if optional:  # the versions that a project names as tested: no bound that could fail
        return Pin(component, spec, None, False, 2, False, source, optional)
    return _range(component, spec, source)


def _range(component: str, spec: str, source: Source) -> Pin:
    """A range as metadata writes it: the floor counts as far as it is stated."""
    found = _FLOOR.search(spec)
    floor = version(component, found[1]) if found else None
    clauses = ",".join(sorted(spec.split(","), reverse=True))
    places = min(len(floor.parts), 3) if floor else 3
    return Pin(component, clauses, floor, False, places, True, source)
