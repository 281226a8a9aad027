"""Read SPDX: 2.x in JSON, and 3.0 in JSON-LD, whose context the specification fixes.

Sources: https://spdx.github.io/spdx-spec/v2.3/ ("Composition of an SPDX document"),
https://spdx.github.io/spdx-spec/v3.0.1/ (``Software/Package``, ``Core/ExternalIdentifier`` and the
serialisation in JSON-LD).
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct, field

from compatgate.discovery.sbom.interface import (
    MAX_PARTS,
    Bill,
    Part,
    Reader,
    component_filter,
    convert,
    in_json,
    list_objects,
    read_json,
)
from compatgate.errors import BadInput

_SPDX_JSON = re.compile(r'"spdxVersion"\s*:\s*"SPDX-2\.|"SPDXID"\s*:')
_SPDX_VERSION = re.compile(r"SPDX-2\.\d+")
_SPDX3 = re.compile(r'"@context"\s*:[^,]*spdx\.org/rdf/3')
_SPDX3_VERSION = re.compile(r"spdx\.org/rdf/(3\.\d+(?:\.\d+)?)/")
_READ_SPDX3 = ("3.0", "3.0.0", "3.0.1")
_SPDX3_PACKAGES = ("software_Package", "ai_AIPackage")


class Reference(Struct, frozen=True, rename="camel"):
    """A reference of a package to another catalog."""

    reference_type: str
    reference_locator: str


class Package(Struct, frozen=True, rename="camel"):
    """The fields of a package that are read; errors in others do not matter."""

    id: str = field(name="SPDXID")
    name: str
    download_location: str = ""
    version_info: str | None = None
    external_refs: list[dict[str, Any]] | None = None


class Document(Struct, frozen=True, rename="camel"):
    """The fields of a document that are read."""

    id: str = field(name="SPDXID")
    spdx_version: str
    name: str


def _read_spdx(text: str, name: str) -> Bill:
    """Return every package that may be a component."""
    body = read_json(text, name)
    packages = list_objects(body.get("packages"), "packages", f"{name}: packages")
    document = convert(body, Document, "SPDX", name)
    if not _SPDX_VERSION.fullmatch(document.spdx_version):
        problem = f"is of version {document.spdx_version[:40]!r}"
        raise BadInput(problem, field=f"{name}: spdxVersion", hint="write SPDX 2.3")
    parts = tuple(
        _spdx_part(package, name)
        for package in packages
        if component_filter(package.get("name"), str(package.get("externalRefs")))
    )
    return Bill(document.spdx_version.replace("-", " "), parts, bool(packages))


def _spdx_part(body: dict[str, Any], name: str) -> Part:
    package = convert(body, Package, "SPDX", name)
    purls = [
        convert(one, Reference, "SPDX", name).reference_locator
        for one in package.external_refs or ()
        if one.get("referenceType") == "purl"
    ]
    return Part(package.id, package.name, package.version_info or "", next(iter(purls), ""))


class Identifier(Struct, frozen=True, rename="camel"):
    """An identifier of an element of SPDX 3."""

    external_identifier_type: str = ""
    identifier: str = ""


class Element(Struct, frozen=True):
    """The fields of a package of SPDX 3 that are read."""

    name: str = ""
    spdx_id: str | None = field(name="spdxId", default=None)
    id: str = field(name="@id", default="")
    version: str = field(name="software_packageVersion", default="")
    url: str | None = field(name="software_packageUrl", default=None)


def _read_spdx3(text: str, name: str) -> Bill:
    """Return every package that may be a component."""
    document = read_json(text, name)
    match = _SPDX3_VERSION.search(str(document.get("@context"))[:2000])
    if match is None or match[1] not in _READ_SPDX3:
        version = f"SPDX {match[1]}" if match else "SPDX 3 of an unknown version"
        hint = "write SPDX 3.0, SPDX 2.3 or CycloneDX"
        raise BadInput(f"is {version}, which is not supported", field=name, hint=hint)
    graph = document.get("@graph", [document])
    elements = list_objects(graph, "elements", f"{name}: @graph", MAX_PARTS * 5)
    packages = [one for one in elements if one.get("type") in _SPDX3_PACKAGES]
    if len(packages) > MAX_PARTS:
        raise BadInput(f"has more than {MAX_PARTS} packages", field=name)
    parts = (_spdx3_part(one, name) for one in packages)
    candidates = tuple(part for part in parts if component_filter(part.name, part.purl))
    return Bill(f"SPDX {match[1]}", candidates, bool(packages))


def _spdx3_part(body: dict[str, Any], name: str) -> Part:
    element = convert(body, Element, "SPDX", name)
    identifiers = body.get("externalIdentifier")
    purls = [
        convert(one, Identifier, "SPDX", name).identifier
        for one in (identifiers if isinstance(identifiers, list) else ())
        if isinstance(one, dict) and one.get("externalIdentifierType") == "packageUrl"
    ]
    ref = element.id if element.spdx_id is None else element.spdx_id
    return Part(ref, element.name, element.version, element.url or next(iter(purls), ""))


SPDX = Reader(in_json(_SPDX_JSON), _read_spdx)
SPDX3 = Reader(in_json(_SPDX3), _read_spdx3)
"""SPDX 3.0; versions that are not known by name are refused."""
