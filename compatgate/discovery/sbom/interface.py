"""Define the parts of a bill of materials, and bound its input.

`component_filter` filters parts first: most of an image's thousands of packages are no part of a
GPU stack. The library that reads package URLs is optional.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from compatgate.core.components import component_pattern
from compatgate.discovery.lockfiles.interface import PackageOrigin
from compatgate.discovery.observations import Conflict, Observation
from compatgate.errors import BadInput, quote_error
from compatgate.resources import install_hint
from compatgate.strict_json import DECODE_ERRORS

LARGEST_FILE = 64 * 1024 * 1024
"""In bytes; the SPDX document of a CUDA image with every file listed is about 40 MB."""
MAX_PARTS = 200_000
MAX_LEVELS = 100
_PYTHON_PACKAGES = re.compile(r"pkg:(?:pypi|conda)/", re.IGNORECASE)
"""Prefixes of packages that may carry GPU code under any name."""
T = TypeVar("T")


class Part(Struct, frozen=True):
    """One component of a bill of materials, with the marker for its installation, if any."""

    ref: str
    name: str
    version: str = ""
    purl: str = ""
    marker: str = ""


class Bill(Struct, frozen=True):
    """The possible components in a document, and whether it lists any part."""

    format: str
    parts: tuple[Part, ...]
    listed: bool = True


class Reader(Struct, frozen=True):
    """A reader of one standard; ``recognises`` never raises, ``read`` gets a text and its name."""

    recognises: Callable[[str], bool]
    read: Callable[[str, str], Bill]


class SbomReading(Struct, frozen=True):
    """The stack in a bill of materials; none of the ``open`` sentences is a pass."""

    format: str
    observations: tuple[Observation, ...]
    conflicts: tuple[Conflict, ...] = ()
    open: tuple[str, ...] = ()
    origins: dict[str, PackageOrigin] = {}


def in_json(shape: re.Pattern[str]) -> Callable[[str], bool]:
    """Return a function that tells objects in JSON by a pattern of their text."""
    return lambda text: text.lstrip()[:1] == "{" and bool(shape.search(text))


def read_json(text: str, name: str) -> dict[str, Any]:
    """Read a JSON object that is not nested too deeply for a recursive reader."""
    try:
        document = msgspec.json.decode(text)
    except DECODE_ERRORS as error:
        raise BadInput(f"is not valid JSON: {quote_error(error)}", field=name) from None
    if not isinstance(document, dict):
        raise BadInput("must be a JSON object", field=name)
    level: list[Any] = [document]
    for _ in range(MAX_LEVELS):
        values = [v for one in level for v in (one.values() if isinstance(one, dict) else one)]
        level = [value for value in values if isinstance(value, (dict, list))]
        if not level:
            return document
    raise BadInput("is nested too deeply", field=name)


def list_objects(value: Any, what: str, field: str, most: int = MAX_PARTS) -> list[dict[str, Any]]:
    """Return a list of objects, none for null; ``what`` names the items in errors."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise BadInput(f"must be a list of {what}", field=field)
    if len(value) > most:
        raise BadInput(f"has more than {most} {what}", field=field)
    return value


def convert(value: Any, kind: type[T], standard: str, name: str) -> T:
    """Return a value as a struct; ``standard`` names the document in the error."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        problem = f"is not a {standard} document: {quote_error(error)}"
        raise BadInput(problem, field=name) from None


def component_filter(*texts: object) -> bool:
    """Return whether a name or package URL may be of a component or GPU package."""
    known = component_pattern()
    return any(
        isinstance(text, str) and bool(_PYTHON_PACKAGES.search(text) or known.search(text))
        for text in texts
    )


def parse_purl(text: str) -> Any:
    """Parse a package URL; return None for other text."""
    if not text:
        return None
    try:
        from packageurl import PackageURL
    except ImportError:
        problem, hint = "reading a bill of materials needs packageurl", install_hint("sbom")
        raise BadInput(problem, field="sbom", hint=hint) from None
    try:
        return PackageURL.from_string(text)
    except ValueError:
        return None
