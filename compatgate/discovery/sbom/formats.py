"""Read CycloneDX and SPDX in JSON, and write an inspected stack as CycloneDX 1.6.

SPDX is read as 2.x. CycloneDX has no
field for GPU code, forward compatibility and open questions: a property of the document holds them,
so that reading the document gives the same stack with the same open questions.

Sources: https://cyclonedx.org/specification/overview/, https://cyclonedx.org/docs/1.6/json/;
https://spdx.github.io/spdx-spec/v2.3/ ("Composition of an SPDX document").
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Literal
from urllib.parse import quote
from uuid import NAMESPACE_URL, uuid5

import msgspec
from msgspec import Struct, field

from compatgate import version
from compatgate.core.components import COMPONENTS, is_framework, label_of, sort_components
from compatgate.core.stack import SPECIAL_KEYS
from compatgate.core.vocabulary import NEEDS_URL
from compatgate.discovery.findings import Inspection
from compatgate.discovery.observations import Observation
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
from compatgate.errors import BadInput, quote_error

JsonObject = dict[str, Any]
_CYCLONEDX_JSON = re.compile(r'"bomFormat"\s*:\s*"CycloneDX"')
_MARKER = "uv:package:marker"
"""uv exports a lock for every platform, and says so in a property."""
STACK_PROPERTY = "compatgate:stack"
"""The document's property for findings of ``inspect`` that are no components, a JSON object."""
_STACK_TEXTS = ("cuda-compat", "cuda-compat-use", *NEEDS_URL)
_BY_NAME = ("wheels", "measured", "alternatives")
_STACK_LISTS = ("arch", "require", "open", "conflicts", "unread")
_STACK_KINDS: dict[str, type] = {
    **dict.fromkeys(_STACK_TEXTS, str),
    **dict.fromkeys(_BY_NAME, dict),
    **dict.fromkeys(_STACK_LISTS, list),
}
_TYPES = {"framework": "framework", "runtime": "platform"}
"""CycloneDX's type for a kind of component; a library otherwise."""


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
    metadata = document.get("metadata")
    described = metadata.get("component") if isinstance(metadata, dict) else None
    components = list_objects(document.get("components"), "components", f"{name}: components")
    first = list_objects([described] if described else [], "components", f"{name}: metadata")
    parts = tuple(_read_parts([*first, *components], name))
    rest = _stack_property(document.get("properties"), name)
    listed = bool(components or first or rest)
    return Bill(f"CycloneDX {document.get('specVersion')}", parts, listed, rest)


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


def _stack_property(properties: Any, name: str) -> dict[str, Any]:
    """Return the part of the stack that ``inspect --format cyclonedx`` wrote as a property."""
    stated = [
        item.get("value")
        for item in (properties if isinstance(properties, list) else ())
        if isinstance(item, dict) and item.get("name") == STACK_PROPERTY
    ]
    if not stated:
        return {}
    try:
        rest = msgspec.json.decode(
            str(stated[0]), type=dict[str, str | bool | list[str] | dict[str, Any]]
        )
        unknown = [key for key in rest if key not in _STACK_KINDS]
        if unknown or any(not isinstance(rest[key], _STACK_KINDS[key]) for key in rest):
            raise ValueError(f"{unknown or sorted(rest)} in the stack")
    except (msgspec.DecodeError, ValueError) as error:
        raise BadInput(
            f"has a malformed property: {quote_error(error)}", field=f"{name}: {STACK_PROPERTY}"
        ) from None
    return rest


CYCLONEDX = Reader(in_json(_CYCLONEDX_JSON), _read_cyclonedx)


def to_cyclonedx(what: str, inspection: Inspection) -> JsonObject:
    """Write an inspection of ``what`` as CycloneDX; the same inspection gives the same document."""
    stack = inspection.stack
    names = sort_components(name for name in stack if name not in SPECIAL_KEYS)
    rest = {
        name: value for name, value in stack.items() if name in SPECIAL_KEYS or name in NEEDS_URL
    }
    for key, more in (
        ("open", inspection.open),
        ("conflicts", [conflict.message for conflict in inspection.conflicts]),
    ):
        if sentences := list(dict.fromkeys([*rest.get(key, ()), *more])):
            rest[key] = list(map(_valid_text, sentences))
    document: JsonObject = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "tools": {
                "components": [{"type": "application", "name": "compatgate", "version": version()}]
            },
            # With a suffix, a folder "torch" does not become a component when the document is read.
            "component": {
                "type": "application",
                "bom-ref": "inspected",
                "name": _valid_text(f"{what} (seen)"),
            },
        },
        "components": [
            _write_component(name, stack[name], inspection.observations) for name in names
        ],
    }
    if rest:
        document["properties"] = [
            {"name": STACK_PROPERTY, "value": json.dumps(rest, sort_keys=True)}
        ]
    if "open" in rest:
        document["compositions"] = [{"aggregate": "incomplete", "assemblies": ["inspected"]}]
    text = json.dumps(document, sort_keys=True)
    return {**document, "serialNumber": f"urn:uuid:{uuid5(NAMESPACE_URL, text)}"}


def _write_component(name: str, version: str, observations: Iterable[Observation]) -> JsonObject:
    known = COMPONENTS.get(name)
    of_pypi = (is_framework(name) or name not in COMPONENTS) and "+conda" not in version
    ecosystem = "pypi" if of_pypi and name != "tritonserver" else "generic"
    purl = f"pkg:{ecosystem}/{name}@{quote(version, safe='.-_~')}"
    seen = dict.fromkeys(o.origin for o in observations if o.component == name)
    component: JsonObject = {
        "type": _TYPES.get(known.kind, "library") if known else "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "description": label_of(name),
        "purl": purl,
    }
    if seen:
        component["evidence"] = {
            "occurrences": [{"location": _valid_text(place)} for place in seen]
        }
    return component


def _valid_text(place: str) -> str:
    """Return a place as valid text; names of files may hold other bytes."""
    return place.encode("utf-8", "backslashreplace").decode()


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
    rows = (row for row in package.external_refs or () if row.get("referenceType") == "purl")
    purl = next((convert(row.get("referenceLocator"), str, "SPDX", name) for row in rows), "")
    return Part(package.id, package.name, package.version_info or "", purl)


SPDX = Reader(in_json(_SPDX_JSON), _read_spdx)
