"""Read CycloneDX and SPDX 2.x in JSON.

Sources: https://cyclonedx.org/specification/overview/, https://cyclonedx.org/docs/1.6/json/;
https://spdx.github.io/spdx-spec/v2.3/ ("Composition of an SPDX document").
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Literal

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
    parse_purl,
    read_json,
)
from compatgate.errors import BadInput

JsonObject = dict[str, Any]
_CYCLONEDX_JSON = re.compile(r'"bomFormat"\s*:\s*"CycloneDX"')
_MARKER = "uv:package:marker"
"""uv exports a lock for every platform, and says so in a property."""
_SPDX_JSON = re.compile(r'"spdxVersion"\s*:\s*"SPDX-2\.|"SPDXID"\s*:')
_SPDX_VERSION = re.compile(r"SPDX-2\.\d+")


class Property(Struct, frozen=True):
    """A property of a component."""

    name: str
    value: str | None = None


class Component(Struct, frozen=True):
    """The fields of a component that are read; errors in licences and hashes do not matter."""

    type: Literal[
        "application",
        "container",
        "cryptographic-asset",
        "data",
        "device",
        "device-driver",
        "file",
        "firmware",
        "framework",
        "library",
        "machine-learning-model",
        "operating-system",
        "platform",
    ]
    name: str
    version: str | None = None
    purl: str | None = None
    bom_ref: str | None = field(name="bom-ref", default=None)
    properties: tuple[Property, ...] | None = None


def _read_cyclonedx(text: str, name: str) -> Bill:
    """Return possible components, nested ones and the described one included."""
    document = read_json(text, name)
    if document.get("bomFormat") != "CycloneDX":
        hint = "give the document itself, without its attestation"
        raise BadInput("quotes a bill of materials, and is none", field=name, hint=hint)
    metadata = document.get("metadata")
    described = metadata.get("component") if isinstance(metadata, dict) else None
    components = list_objects(document.get("components"), "components", f"{name}: components")
    first = list_objects([described] if described else [], "components", f"{name}: metadata")
    parts = tuple(_read_parts([*first, *components], name))
    listed = bool(components or first)
    return Bill(f"CycloneDX {document.get('specVersion')}", parts, listed)


def _read_parts(components: Iterable[JsonObject], name: str) -> Iterator[Part]:
    waiting = deque(components)
    while waiting:
        body = waiting.popleft()
        waiting += list_objects(body.get("components"), "components", f"{name}: components")
        if len(waiting) > MAX_PARTS:
            raise BadInput(f"has more than {MAX_PARTS} components", field=name)
        if not component_filter(body.get("name"), body.get("purl")):
            continue
        one = convert(body, Component, "CycloneDX", name)
        if one.purl and parse_purl(one.purl) is None:
            what = "is not a package URL"
            raise BadInput(what, field=f"{name}: {one.bom_ref or one.name}", value=one.purl)
        marker = next((p.value or "" for p in one.properties or () if p.name == _MARKER), "")
        yield Part(one.bom_ref or one.name, one.name, one.version or "", one.purl or "", marker)


CYCLONEDX = Reader(in_json(_CYCLONEDX_JSON), _read_cyclonedx)


class Package(Struct, frozen=True, rename="camel"):
    """The fields of a package that are read; errors in others do not matter."""

    id: str = field(name="SPDXID")
    name: str
    download_location: str = ""
    version_info: str | None = None
    external_refs: list[JsonObject] | None = None


class Document(Struct, frozen=True, rename="camel"):
    """The fields of a document that are read."""

    id: str = field(name="SPDXID")
    spdx_version: str
    name: str


def _read_spdx(text: str, name: str) -> Bill:
    body = read_json(text, name)
    packages = list_objects(body.get("packages"), "packages", f"{name}: packages")
    document = convert(body, Document, "SPDX", name)
    if not _SPDX_VERSION.fullmatch(document.spdx_version):
        problem = f"is of version {document.spdx_version[:40]!r}"
        raise BadInput(problem, field=f"{name}: spdxVersion", hint="write SPDX 2.3")
    parts: list[Part] = []
    for row in packages:
        if component_filter(row.get("name"), str(row.get("externalRefs"))):
            package = convert(row, Package, "SPDX", name)
            purls = (
                one for one in package.external_refs or () if one.get("referenceType") == "purl"
            )
            locator: Any = next((one.get("referenceLocator") for one in purls), "")
            purl = convert(locator, str, "SPDX", name)
            parts.append(Part(package.id, package.name, package.version_info or "", purl))
    return Bill(document.spdx_version.replace("-", " "), tuple(parts), bool(packages))


SPDX = Reader(in_json(_SPDX_JSON), _read_spdx)
