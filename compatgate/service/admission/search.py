"""Find pods in objects whose kind does not say where they are: by their shape, within bounds.

A pod spec has a list of containers. A mapping with resources of its own, as custom kinds have it,
counts as a pod of one container; what it needs of a node may stand around it. An object of a known
kind inside is read as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from compatgate.kit.kubernetes import read_labels, read_list, read_mapping, read_text
from compatgate.service.admission.kinds import Kinds, PodKind
from compatgate.service.admission.pods import Pod, inherited, pods_of

MAX_PARTS = 50_000
"""Mappings, lists and values of one object that are looked at."""
_SKIPPED: tuple[str, ...] = ("metadata", "status")


class FoundPods(Struct, frozen=True):
    """The pods of an object.

    Attributes:
        complete: False: the object has more than `MAX_PARTS` parts, and the rest was not searched.
    """

    pods: Iterable[Pod]
    complete: bool = True


class _Part(Struct, frozen=True):
    where: str
    value: Any
    outer: dict[str, Any] = {}
    annotations: dict[str, str] = {}


def find_pods(document: Mapping[str, Any], kind: PodKind, kinds: Kinds) -> FoundPods:
    """Return the pods that an object is or makes: where its kind says, or by search."""
    if kind.search:
        return search_pods(document, kinds)
    return FoundPods(pods_of(document, kind))


def unknown_kind(name: str) -> PodKind:
    """Return a kind that no file names: its objects are searched."""
    return PodKind(kind=name, resource=name.lower(), search=True)


def search_pods(document: Mapping[str, Any], kinds: Kinds) -> FoundPods:
    """Return the parts of an object that have the shape of a pod, in the order of the object."""
    found: list[Pod] = []
    stack = [_Part("", document)]
    for _ in range(MAX_PARTS):
        if not stack:
            return FoundPods(found)
        part = stack.pop()
        if isinstance(part.value, dict):
            stack += reversed(_look_at(part, kinds, found))
        elif isinstance(part.value, list):
            items = enumerate(part.value[:MAX_PARTS])
            stack += reversed(
                [replace(part, where=f"{part.where}[{n}]", value=v) for n, v in items]
            )
    return FoundPods(found, not stack)


def _look_at(part: _Part, kinds: Kinds, found: list[Pod]) -> list[_Part]:
    """Add the pod that a mapping is, if it is one; return the parts that are still to be seen."""
    value, where = part.value, part.where
    if where and (known := _known_kind(value, kinds)):
        found += [replace(pod, path=f"{where}.{pod.path}") for pod in pods_of(value, known)]
        return []
    stated = read_labels(read_mapping(value.get("metadata")).get("annotations"))
    annotations = {**part.annotations, **stated, **read_labels(value.get("annotations"))}
    skipped = _SKIPPED
    if _is_pod_spec(value):
        found.append(Pod(where, annotations, value))
        skipped = (*_SKIPPED, "initContainers", "containers", "ephemeralContainers")
    elif any(_states_resources(value.get(field)) for field in kinds.resource_fields):
        beside = [v for v in value.values() if isinstance(v, dict)]
        spec = {**part.outer, **inherited(beside), **value}
        found.append(Pod(where, annotations, spec, itself=True))
    outer = {**part.outer, **inherited([value])}
    return [
        _Part(f"{where}.{key}" if where else key, item, outer, annotations)
        for key, item in value.items()
        if key not in skipped and isinstance(item, dict | list)
    ]


def _known_kind(value: Mapping[str, Any], kinds: Kinds) -> PodKind | None:
    name, version = read_text(value.get("kind")), read_text(value.get("apiVersion"))
    if not name or not version:
        return None
    known = kinds.of(version.rpartition("/")[0], name)
    return known if known and not known.search else None


def _is_pod_spec(value: Mapping[str, Any]) -> bool:
    return any(
        isinstance(item, dict) and ("image" in item or "resources" in item)
        for item in read_list(value.get("containers"))
    )


def _states_resources(value: Any) -> bool:
    return isinstance(value, dict) and any(
        isinstance(value.get(part), dict) for part in ("limits", "requests")
    )
