"""Pods of an object, and their containers that ask for GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from compatgate.errors import BadInput
from compatgate.gate.admission.devices import mounted, runtime_class
from compatgate.gate.admission.kinds import Kinds, PodKind
from compatgate.gate.admission.loose import at, items, mapping, text, texts
from compatgate.gate.admission.variables import VISIBLE, Changes, read_variables

GPU = "compatgate.dev/gpu"
"""Annotation: ``true``, every container uses GPUs. ``false`` exempts nothing: whoever asks for GPUs
does not decide that they are none."""
_LISTS = ("initContainers", "containers", "ephemeralContainers")
_YES, _NO = "true", "false"


class Pod(Struct, frozen=True):
    """A pod, or the template of one.

    Attributes:
        path: where in the object; empty: the object is the pod.
        annotations: of the object, overlaid with those of the template.
    """

    path: str
    annotations: Mapping[str, str]
    spec: Mapping[str, Any]
    more: tuple[str, ...] = ()
    """Fields of the spec that hold one container each."""


class Container(Struct, frozen=True):
    """A container that asks for GPUs.

    Attributes:
        path: where in the object.
        image: empty where none is named.
        why: what says that it uses GPUs.
        resources: that say which; empty: it asks in a way that does not say, perhaps beside one
            that does.
        sure: that these are GPUs; False: a claim that may be something else, or an image that may
            ask for none.
    """

    name: str
    path: str
    image: str
    why: str
    changes: Changes
    sure: bool = True
    resources: tuple[str, ...] = ()


class _Asks(Struct, frozen=True):
    """How a container asks for GPUs; ``why`` is empty where it does not."""

    why: str
    sure: bool = True
    resources: tuple[str, ...] = ()


def pods_of(document: Mapping[str, Any], kind: PodKind) -> Iterator[Pod]:
    """The pods that an object is, or makes."""
    own = texts(mapping(document.get("metadata")).get("annotations"))
    if kind.pod:
        yield Pod("", own, mapping(document.get("spec")))
    for path in kind.templates:
        for where, found in at(document, path):
            template = mapping(found)
            theirs = texts(mapping(template.get("metadata")).get("annotations"))
            yield Pod(where, {**own, **theirs}, mapping(template.get("spec")))
    for path in kind.specs:
        for where, found in at(document, path):
            spec = mapping(found)
            theirs = texts(spec.get("annotations"))
            yield Pod(where, {**own, **theirs}, spec, kind.containers)


def gpu_containers(pod: Pod, kinds: Kinds) -> Iterator[Container]:
    """The containers of a pod that ask for GPUs: by resource, claim, variable, mount or annotation.

    Of a pod in which none does, and whose runtime class hands out GPUs to images that ask for them,
    every container counts that does not decline: what else would it choose that class for.

    Raises:
        BadInput: the annotation says neither yes nor no.
    """
    said = pod.annotations.get(GPU, "").strip().lower()
    if said not in ("", _YES, _NO):
        hint = f"{_YES} or {_NO}"
        raise BadInput("is malformed", field=f"annotation {GPU}", value=said, hint=hint)
    claims = {text(mapping(claim).get("name")) for claim in items(pod.spec.get("resourceClaims"))}
    silent: list[tuple[str, Mapping[str, Any], Changes]] = []
    found = False
    for path, raw in _containers(pod):
        changes = read_variables(raw)
        asks = _asks(raw, pod.spec, kinds, claims, changes)
        if not asks.why and said == _YES:
            asks = _Asks(f"the annotation {GPU}")
        if asks.why:
            found = True
            yield _container(path, raw, asks, changes)
        elif not changes.declines:
            silent.append((path, raw, changes))
    by_class = runtime_class(pod.spec, kinds)
    if by_class and not found:
        for path, raw, changes in silent:
            yield _container(path, raw, _Asks(f"the runtime class {by_class}", False), changes)


def says_none(pod: Pod) -> bool:
    """Tell whether the pod's author says that it uses no GPU."""
    return pod.annotations.get(GPU, "").strip().lower() == _NO


def _container(path: str, raw: Mapping[str, Any], asks: _Asks, changes: Changes) -> Container:
    name, image = text(raw.get("name")), text(raw.get("image")).strip()
    name = name or path.rpartition(".")[2]
    return Container(name, path, image, asks.why, changes, asks.sure, asks.resources)


def _containers(pod: Pod) -> Iterator[tuple[str, Mapping[str, Any]]]:
    base = f"{pod.path}." if pod.path else "spec."
    if pod.path and not pod.more:
        base += "spec."
    for name in _LISTS:
        for number, item in enumerate(items(pod.spec.get(name))):
            yield f"{base}{name}[{number}]", mapping(item)
    for name in pod.more:
        if isinstance(pod.spec.get(name), dict):
            yield f"{base}{name}", pod.spec[name]


def _asks(
    raw: Mapping[str, Any],
    spec: Mapping[str, Any],
    kinds: Kinds,
    claims: set[str],
    changes: Changes,
) -> _Asks:
    """Tell how a container asks; a way past the scheduler may bring it any GPU of the node."""
    resources = _requested(raw, kinds)
    other, sure = _other_way(raw, spec, claims, changes)
    if resources:
        return _Asks(resources[0], resources=() if other else resources)
    return _Asks(other, sure)


def _requested(raw: Mapping[str, Any], kinds: Kinds) -> tuple[str, ...]:
    resources = mapping(raw.get("resources"))
    found = (
        name
        for part in ("limits", "requests")
        for name, count in mapping(resources.get(part)).items()
        if kinds.is_gpu(name) and _some(count)
    )
    return tuple(dict.fromkeys(found))


def _other_way(
    raw: Mapping[str, Any], spec: Mapping[str, Any], claims: set[str], changes: Changes
) -> tuple[str, bool]:
    if changes.asks:
        return VISIBLE, True
    if place := mounted(raw, spec):
        return f"the mount {place}", True
    for item in items(mapping(raw.get("resources")).get("claims")):
        if (name := text(mapping(item).get("name"))) in claims:
            return f"the resource claim {name}", False
    return "", True


def _some(count: Any) -> bool:
    """Whether a quantity is more than none; what is no quantity counts as some."""
    if isinstance(count, str):
        return count.strip().lstrip("+").rstrip("kMGTPEinum") not in ("0", "00", "0.0", "-0")
    return count is not None and count is not False and count != 0
