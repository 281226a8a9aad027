"""Read CycloneDX and SPDX 2.x in JSON, bounded, as the parts of a bill of materials.

`component_filter` filters parts first: most of an image's thousands of packages are no part of a
GPU stack. The library that reads package URLs is optional.

Sources: https://cyclonedx.org/specification/overview/, https://cyclonedx.org/docs/1.6/json/;
https://spdx.github.io/spdx-spec/v2.3/ ("Composition of an SPDX document").
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct, field

from compatgate.core.components import component_pattern
from compatgate.discovery.lockfiles.interface import PackageOrigin
from compatgate.discovery.observations import Conflict, Observation
from compatgate.errors import BadInput, quote_error
from compatgate.resources import install_hint
from compatgate.strict_json import DECODE_ERRORS

JsonObject = dict[str, Any]
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


def list_objects(value: Any, what: str, where: str) -> list[JsonObject]:
    """Return a list of objects, none for null; ``what`` names the items in errors."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise BadInput(f"must be a list of {what}", field=where)
    if len(value) > MAX_PARTS:
        raise BadInput(f"has more than {MAX_PARTS} {what}", field=where)
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
