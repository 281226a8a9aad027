"""An inspected stack as a CycloneDX 1.6 document in JSON.

What has no place of its own there (GPU code, forward compatibility, what is left open) is a
property of the document, so that reading it again gives the same stack, and no pass for what was
not known.

Source: https://cyclonedx.org/docs/1.6/json/.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote
from uuid import NAMESPACE_URL, uuid5

from compatgate import __version__
from compatgate.core.components import COMPONENTS, in_order, is_framework, label_of
from compatgate.core.stack_values import SPECIAL
from compatgate.core.vocabulary import NEEDS_URL
from compatgate.discovery.observed import Observation
from compatgate.discovery.sbom.cyclonedx import STACK
from compatgate.discovery.stack import Inspection

Json = dict[str, Any]
_TYPES = {"framework": "framework", "runtime": "platform"}


def to_cyclonedx(what: str, inspection: Inspection) -> Json:
    """The document; the same inspection always gives the same one.

    Args:
        what: that was inspected, for people.
        inspection: of it.
    """
    stack = inspection.stack
    names = in_order(name for name in stack if name not in SPECIAL)
    rest = {name: value for name, value in stack.items() if name in SPECIAL or name in NEEDS_URL}
    for key, more in (
        ("open", inspection.open),
        ("conflicts", [conflict.message for conflict in inspection.conflicts]),
    ):
        if said := list(dict.fromkeys([*rest.get(key, ()), *more])):
            rest[key] = list(map(_text, said))
    document: Json = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "tools": {
                "components": [
                    {"type": "application", "name": "compatgate", "version": __version__}
                ]
            },
            # With more than the name, a folder "torch" is no component when it is read again.
            "component": {
                "type": "application",
                "bom-ref": "inspected",
                "name": _text(f"{what} (seen)"),
            },
        },
        "components": [_component(name, stack[name], inspection.observations) for name in names],
    }
    if rest:
        document["properties"] = [{"name": STACK, "value": json.dumps(rest, sort_keys=True)}]
    if "open" in rest:
        document["compositions"] = [{"aggregate": "incomplete", "assemblies": ["inspected"]}]
    told = json.dumps(document, sort_keys=True)
    return {**document, "serialNumber": f"urn:uuid:{uuid5(NAMESPACE_URL, told)}"}


def _component(name: str, version: str, observations: Iterable[Observation]) -> Json:
    known = COMPONENTS.get(name)
    purl = f"pkg:{_ecosystem(name, version)}/{name}@{quote(version, safe='.-_~')}"
    seen = dict.fromkeys(o.origin for o in observations if o.component == name)
    component: Json = {
        "type": _TYPES.get(known.kind, "library") if known else "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "description": label_of(name),
        "purl": purl,
    }
    if seen:
        component["evidence"] = {"occurrences": [{"location": _text(place)} for place in seen]}
    return component


def _ecosystem(name: str, version: str) -> str:
    """Return ``pypi`` for frameworks and packages, save what a channel of conda built."""
    of_pypi = (is_framework(name) or name not in COMPONENTS) and "+conda" not in version
    return "pypi" if of_pypi and name != "tritonserver" else "generic"


def _text(place: str) -> str:
    """Names of files need not be text."""
    return place.encode("utf-8", "backslashreplace").decode()
