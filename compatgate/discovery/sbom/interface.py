"""Define the interface of a reader of bills of materials, and bound its input.

`component_filter` filters parts first: most of an image's thousands of packages are no part of a
GPU stack. The libraries that read the formats are optional.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from compatgate.core.components import component_pattern
from compatgate.discovery.lockfiles.interface import PackageOrigin
from compatgate.discovery.observations import Conflict, Observation
from compatgate.errors import BadInput, quote_error
from compatgate.release import install_hint
from compatgate.strict_json import DECODE_ERRORS


class Part(Struct, frozen=True):
    """One component of a bill of materials.

    Attributes:
        ref: bom-ref or SPDXID.
        name: name as the document writes it.
        purl: package URL; empty without one.
        marker: environment marker for the installation, where the document has one.
    """

    ref: str
    name: str
    version: str = ""
    purl: str = ""
    marker: str = ""


class Bill(Struct, frozen=True):
    """The parts of a document.

    Attributes:
        format: ``CycloneDX 1.6``, ``SPDX 2.3``.
        parts: possible components; other parts may be missing.
        listed: whether the document lists any part.
        rest: parts of a stack that are no components, as ``inspect`` writes them.
    """

    format: str
    parts: tuple[Part, ...]
    listed: bool = True
    rest: dict[str, Any] = {}


class Reader(Protocol):
    """A reader of one standard in one notation."""

    def recognises(self, text: str) -> bool:
        """Return whether the text is of this standard and notation; never raises."""
        ...

    def read(self, text: str, name: str) -> Bill:
        """Return the parts.

        Raises:
            BadInput: malformed, or the library for it is not installed.
        """
        ...


class SbomReading(Struct, frozen=True):
    """The stack in a bill of materials.

    Attributes:
        format: standard and version.
        observations: observations whose origin is the file and a bom-ref or SPDXID.
        conflicts: contradictions beyond those that `settle` finds.
        open: sentences about undecided questions; none is a pass.
        rest: the rest of the stack in the form of requests: ``arch``, ``cuda-compat``, ...
        origins: sources of the files of each GPU package, by name.
    """

    format: str
    observations: tuple[Observation, ...]
    conflicts: tuple[Conflict, ...] = ()
    open: tuple[str, ...] = ()
    rest: dict[str, Any] = {}
    origins: dict[str, PackageOrigin] = {}


LARGEST_FILE = 64 * 1024 * 1024
"""In bytes; the SPDX document of a CUDA image with every file listed is about 40 MB."""
MAX_PARTS = 200_000
MAX_LEVELS = 100


def import_library(module: str) -> Any:
    """Return a module of the ``sbom`` extra.

    Raises:
        BadInput: the module is not installed; the hint names the extra.
    """
    try:
        return import_module(module)
    except ImportError:
        hint = install_hint("sbom")
        problem = f"reading a bill of materials needs {module.split('.')[0]}"
        raise BadInput(problem, field="sbom", hint=hint) from None


def read_json(text: str, name: str) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        BadInput: the text is not a JSON object, or is nested too deeply.
    """
    try:
        document = msgspec.json.decode(text)
    except DECODE_ERRORS as error:
        raise BadInput(f"is not valid JSON: {quote_error(error)}", field=name) from None
    if not isinstance(document, dict):
        raise BadInput("must be a JSON object", field=name)
    check_depth(document, name)
    return document


def check_depth(document: Any, name: str) -> None:
    """Refuse a document that is nested too deeply for a recursive reader.

    Raises:
        BadInput: the document is nested deeper than `MAX_LEVELS`.
    """
    level, depth = [document], 0
    while level:
        depth += 1
        if depth > MAX_LEVELS:
            raise BadInput("is nested too deeply", field=name)
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below += [v for v in value.values() if isinstance(v, (dict, list))]
            elif isinstance(value, list):
                below += [v for v in value if isinstance(v, (dict, list))]
        level = below


def read_xml(text: str, name: str) -> Any:
    """Return the root element; refuse documents with a type declaration or entities.

    Raises:
        BadInput: the text is not XML, has a type declaration, or is nested too deeply.
    """
    parser = import_library("defusedxml.ElementTree")
    refused = import_library("defusedxml.common").DefusedXmlException
    try:
        root = parser.fromstring(text.encode(), forbid_dtd=True)
    except refused:
        problem = "declares a document type or entities, which are not read"
        raise BadInput(problem, field=name) from None
    except (parser.ParseError, ValueError, LookupError, RecursionError) as error:
        raise BadInput(f"is not valid XML: {quote_error(error)}", field=name) from None
    level, depth = [root], 0
    while level:
        depth += 1
        if depth > MAX_LEVELS:
            raise BadInput("is nested too deeply", field=name)
        level = [child for element in level for child in element]
    return root


_PYTHON_PACKAGES = re.compile(r"pkg:(?:pypi|conda)/", re.IGNORECASE)
"""Prefixes of packages that may carry GPU code under any name."""


def component_filter(*texts: object) -> bool:
    """Return a test for names and package URLs of possible components and GPU packages."""
    known = component_pattern()
    return any(
        isinstance(text, str) and bool(_PYTHON_PACKAGES.search(text) or known.search(text))
        for text in texts
    )
