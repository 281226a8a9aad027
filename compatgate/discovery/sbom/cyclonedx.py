"""Read CycloneDX, and write an inspected stack as CycloneDX.

``cyclonedx-python-lib`` reads CycloneDX in JSON and XML. A stack is written as a CycloneDX 1.6
document in JSON. The format has no field for GPU code, forward compatibility and open questions: a
property of the document holds them, so that reading the document gives the same stack with the
same open questions.

Sources: https://cyclonedx.org/specification/overview/, https://cyclonedx.org/docs/1.6/json/.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote
from uuid import NAMESPACE_URL, uuid5

import msgspec
from msgspec.structs import replace

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
    component_filter,
    import_library,
    read_json,
    read_xml,
)
from compatgate.errors import BadInput, quote_error

_CYCLONEDX_XML = re.compile(
    r"<(?:\w+:)?bom\b[^>]*http://cyclonedx\.org/schema/bom/(?P<version>[\d.]+)", re.S
)
_CYCLONEDX_JSON = re.compile(r'"bomFormat"\s*:\s*"CycloneDX"')
_MARKER = "uv:package:marker"
"""uv exports a lock for every platform, and says so in a property."""
STACK_PROPERTY = "compatgate:stack"
"""The document's property for findings of ``inspect`` that are no components, a JSON object."""
_STACK_TEXTS = ("cuda-compat", "cuda-compat-use", *NEEDS_URL)
_BY_NAME = ("wheels", "measured", "alternatives")
_STACK_KEYS = (*_STACK_TEXTS, "arch", "require", "open", "conflicts", "unread", *_BY_NAME)
_COMPONENT_KEYS = (
    "type",
    "bom-ref",
    "group",
    "name",
    "version",
    "purl",
    "components",
    "properties",
)
"""Fields of a component that are read; errors in licences and hashes do not matter."""


class CycloneDxJson:
    """A CycloneDX document in JSON."""

    def recognises(self, text: str) -> bool:
        """Look for ``"bomFormat": "CycloneDX"``."""
        return text.lstrip()[:1] == "{" and bool(_CYCLONEDX_JSON.search(text))

    def read(self, text: str, name: str) -> Bill:
        """Return every component, nested ones and the described one included."""
        document = read_json(text, name)
        metadata = document.get("metadata")
        described = metadata.get("component") if isinstance(metadata, dict) else None
        bom: dict[str, Any] = {
            "bomFormat": "CycloneDX",
            "components": _read_components(document.get("components"), name),
        }
        if described is not None and (kept := _read_components([described], name)):
            bom["metadata"] = {"component": kept[0]}
        version = document.get("specVersion")
        bom["specVersion"] = version if isinstance(version, str) else "1.6"
        listed = bool(document.get("components") or described)
        rest = _stack_property(document.get("properties"), name)
        bill = _cyclonedx_bill(
            f"CycloneDX {version}", lambda b: b.from_json(bom), name, listed=listed or bool(rest)
        )
        return replace(bill, rest=rest)


class CycloneDxXml:
    """A CycloneDX document in XML."""

    def recognises(self, text: str) -> bool:
        """Look for CycloneDX's name space on a ``bom`` element."""
        return text.lstrip()[:1] == "<" and bool(_CYCLONEDX_XML.search(text[:20_000]))

    def read(self, text: str, name: str) -> Bill:
        """Return every component, nested ones and the described one included."""
        match = _CYCLONEDX_XML.search(text[:20_000])
        version = match["version"] if match else ""
        root = read_xml(text, name)
        return _cyclonedx_bill(f"CycloneDX {version}", lambda b: b.from_xml(root), name)


_StackParts = dict[str, str | bool | list[str] | dict[str, Any]]


def _kind(key: str) -> type:
    if key in _BY_NAME:
        return dict
    return str if key in _STACK_TEXTS else list


def _stack_property(properties: Any, name: str) -> dict[str, Any]:
    """Return the part of the stack that ``inspect --format cyclonedx`` wrote as a property.

    Raises:
        BadInput: the property is malformed.
    """
    stated = [
        item.get("value")
        for item in (properties if isinstance(properties, list) else ())
        if isinstance(item, dict) and item.get("name") == STACK_PROPERTY
    ]
    if not stated:
        return {}
    try:
        rest = msgspec.json.decode(str(stated[0]), type=_StackParts)
        unknown = [key for key in rest if key not in _STACK_KEYS]
        if unknown or any(not isinstance(rest[key], _kind(key)) for key in rest):
            raise ValueError(f"{unknown or sorted(rest)} in the stack")
    except (msgspec.DecodeError, ValueError) as error:
        raise BadInput(
            f"has a malformed property: {quote_error(error)}", field=f"{name}: {STACK_PROPERTY}"
        ) from None
    return rest


def _read_components(value: Any, name: str) -> list[dict[str, Any]]:
    """Return components that may matter, or contain one that may, with the fields that are read."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise BadInput("must be a list of components", field=f"{name}: components")
    kept = [{key: item[key] for key in _COMPONENT_KEYS if key in item} for item in value]
    for item in kept:
        if "components" in item:
            item["components"] = _read_components(item["components"], name)
    return [
        i for i in kept if i.get("components") or component_filter(i.get("name"), i.get("purl"))
    ]


def _cyclonedx_bill(title: str, deserialise: Any, name: str, *, listed: bool | None = None) -> Bill:
    bom_class = import_library("cyclonedx.model.bom").Bom
    try:
        bom = deserialise(bom_class)
        parts = tuple(_cyclonedx_parts(bom))
    except BadInput:
        raise
    except Exception as error:  # the library raises errors of many types for malformed documents
        problem = f"is not a CycloneDX document: {type(error).__name__}: {quote_error(error)}"
        raise BadInput(problem, field=name) from None
    if len(parts) > MAX_PARTS:
        raise BadInput(f"has more than {MAX_PARTS} components", field=name)
    return Bill(title, parts, bool(parts) if listed is None else listed)


def _cyclonedx_parts(bom: Any) -> Iterator[Part]:
    described = bom.metadata.component
    waiting = deque([*([described] if described else []), *bom.components])
    while waiting:
        component = waiting.popleft()
        waiting += component.components
        purl = component.purl
        yield Part(
            str(component.bom_ref.value or component.name),
            component.name,
            component.version or "",
            purl.to_string() if purl else "",
            next((p.value or "" for p in component.properties if p.name == _MARKER), ""),
        )


JsonObject = dict[str, Any]
_TYPES = {"framework": "framework", "runtime": "platform"}


def to_cyclonedx(what: str, inspection: Inspection) -> JsonObject:
    """Write an inspection as CycloneDX; the same inspection gives the same document.

    Args:
        what: name of the inspected file, folder or image.
        inspection: the result of the inspection.
    """
    stack = inspection.stack
    names = sort_components(name for name in stack if name not in SPECIAL_KEYS)
    rest = {
        name: value for name, value in stack.items() if name in SPECIAL_KEYS or name in NEEDS_URL
    }
    for key, more in (
        ("open", inspection.open),
        ("conflicts", [conflict.message for conflict in inspection.conflicts]),
    ):
        if said := list(dict.fromkeys([*rest.get(key, ()), *more])):
            rest[key] = list(map(_valid_text, said))
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
    told = json.dumps(document, sort_keys=True)
    return {**document, "serialNumber": f"urn:uuid:{uuid5(NAMESPACE_URL, told)}"}


def _write_component(name: str, version: str, observations: Iterable[Observation]) -> JsonObject:
    known = COMPONENTS.get(name)
    purl = f"pkg:{_ecosystem(name, version)}/{name}@{quote(version, safe='.-_~')}"
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


def _ecosystem(name: str, version: str) -> str:
    """Return ``pypi`` for frameworks and packages, except builds of conda channels."""
    of_pypi = (is_framework(name) or name not in COMPONENTS) and "+conda" not in version
    return "pypi" if of_pypi and name != "tritonserver" else "generic"


def _valid_text(place: str) -> str:
    """Return a place as valid text; names of files may hold other bytes."""
    return place.encode("utf-8", "backslashreplace").decode()
