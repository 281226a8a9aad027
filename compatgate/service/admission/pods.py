"""Find the pods of an object, and their containers that ask for GPUs.

Sources: NVIDIA/nvidia-container-toolkit ``internal/config/image/cuda_image.go``. NVIDIA's
runtime hands out what ``/dev/null``, mounted below a certain folder, names; else what the
variable ``NVIDIA_VISIBLE_DEVICES`` names, a pod's before the image's; else, to an image with
``CUDA_VERSION`` and without ``NVIDIA_REQUIRE_CUDA``, everything. A node may forbid either way.
The runtime reads requirements from the container's environment, where a pod's variable replaces
the image's.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from compatgate.errors import BadInput
from compatgate.kit.kubernetes import find_at, read_labels, read_list, read_mapping, read_text
from compatgate.service.admission.kinds import Kinds, PodKind

FOLDER = "/var/run/nvidia-container-devices"
_NOT_GPUS = "imex/"
_NULL = "/dev/null"


def gpu_mount(container: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    """Return the mount by which a container asks NVIDIA's runtime for GPUs; empty: there is none.

    Args:
        container: of the pod.
        spec: of the pod, whose volumes say what is mounted.
    """
    places = [
        read_text(read_mapping(m).get("mountPath"))
        for m in read_list(container.get("volumeMounts"))
    ]
    if not any("nvidia-container-devices" in place for place in places):
        return ""
    nulls = {
        read_text(v.get("name"))
        for v in map(read_mapping, read_list(spec.get("volumes")))
        if _is_null(v)
    }
    for mount in map(read_mapping, read_list(container.get("volumeMounts"))):
        place = _clean_path(read_text(mount.get("mountPath")))
        device = place.removeprefix(f"{FOLDER}/")
        if device != place and not device.startswith(_NOT_GPUS) and mount.get("name") in nulls:
            return place
    return ""


def runtime_class(spec: Mapping[str, Any], kinds: Kinds) -> str:
    """Return the pod's runtime class if it hands out GPUs, else empty text."""
    name = read_text(spec.get("runtimeClassName"))
    return name if name and kinds.hands_out(name) else ""


def _is_null(volume: Mapping[str, Any]) -> bool:
    return _clean_path(read_text(read_mapping(volume.get("hostPath")).get("path"))) == _NULL


def _clean_path(path: str) -> str:
    return "/" + posixpath.normpath(path).lstrip("/") if path else ""


VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
_REQUIRE, _MAIN = "NVIDIA_REQUIRE_", "NVIDIA_REQUIRE_CUDA"
_DISABLE_REQUIRE = "NVIDIA_DISABLE_REQUIRE"
_JETPACK = "NVIDIA_REQUIRE_JETPACK"
_LIBRARIES = "LD_LIBRARY_PATH"
_TRUE = ("1", "t", "T", "TRUE", "true", "True")
NO_DEVICES = ("", "void", "none")


class VariableChanges(Struct, frozen=True):
    """The effect of the variables on a question.

    Attributes:
        set: as the question's ``set``.
        open: unknowns that they cause, in sentences.
        unread: parts that were not read, in sentences.
        asks: they ask the container runtime for GPUs.
        declines: they ask it for none, whatever the image asks for.
    """

    set: dict[str, Any] = {}
    open: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    asks: bool = False
    declines: bool = False


def read_variables(container: Mapping[str, Any]) -> VariableChanges:
    """Read the variables of a container of a pod spec; of two of one name the last counts."""
    env = {
        read_text(item.get("name")): item
        for item in map(read_mapping, read_list(container.get("env")))
    }
    changed: dict[str, Any] = {}
    left: list[str] = []
    unread: list[str] = []
    required: dict[str, str] = {}
    for name, item in env.items():
        ours = name in (_DISABLE_REQUIRE, _LIBRARIES) or name.startswith(_REQUIRE)
        if not ours or name.startswith(_JETPACK):
            continue
        if name == _LIBRARIES:
            unread.append(f"{name} is set in the pod: its folders were not read")
        elif "valueFrom" in item:
            left.append(f"{name} has an unknown value (valueFrom)")
        elif name == _DISABLE_REQUIRE:
            changed["disable-require"] = read_text(item.get("value")) in _TRUE
        else:
            required[name] = read_text(item.get("value"))
    changed |= _requirements(required, left)
    if read_list(container.get("envFrom")):
        unread.append("variables of config maps and secrets (envFrom) were not read")
    asks = _names_devices(env.get(VISIBLE_DEVICES))
    declines = VISIBLE_DEVICES in env and not asks
    return VariableChanges(changed, tuple(left), tuple(unread), asks, declines)


def _requirements(required: Mapping[str, str], left: list[str]) -> dict[str, Any]:
    """Return the requirements that replace the image's; the image's main one may stay."""
    if _MAIN not in required:
        left += [f"{name} is set in the pod, and was not checked" for name in required]
        return {}
    return {"require": [value for value in required.values() if value] or None}


def _names_devices(item: Mapping[str, Any] | None) -> bool:
    if item is None:
        return False
    return "valueFrom" in item or read_text(item.get("value")) not in NO_DEVICES


GPU_ANNOTATION = "compatgate.dev/gpu"
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
    changes: VariableChanges
    sure: bool = True
    resources: tuple[str, ...] = ()


class _GpuRequest(Struct, frozen=True):
    """How a container asks for GPUs; ``why`` is empty where it does not."""

    why: str
    sure: bool = True
    resources: tuple[str, ...] = ()


def pods_of(document: Mapping[str, Any], kind: PodKind) -> Iterator[Pod]:
    """Yield the pods that an object is, or makes."""
    own = read_labels(read_mapping(document.get("metadata")).get("annotations"))
    if kind.pod:
        yield Pod("", own, read_mapping(document.get("spec")))
    for path in kind.templates:
        for where, found in find_at(document, path):
            template = read_mapping(found)
            theirs = read_labels(read_mapping(template.get("metadata")).get("annotations"))
            yield Pod(where, {**own, **theirs}, read_mapping(template.get("spec")))
    for path in kind.specs:
        for where, found in find_at(document, path):
            spec = read_mapping(found)
            theirs = read_labels(spec.get("annotations"))
            yield Pod(where, {**own, **theirs}, spec, kind.containers)


def count_containers(pod: Pod) -> int:
    """Return the number of containers of a pod, with GPUs and without."""
    return sum(len(read_list(pod.spec.get(name))) for name in _LISTS) + len(pod.more)


def gpu_containers(pod: Pod, kinds: Kinds) -> Iterator[Container]:
    """Return the containers of a pod that ask for GPUs, by whatever means Kubernetes offers.

    Of a pod in which none does, and whose runtime class hands out GPUs to images that ask for them,
    every container counts that does not decline: what else would it choose that class for.

    Raises:
        BadInput: the annotation says neither yes nor no.
    """
    said = pod.annotations.get(GPU_ANNOTATION, "").strip().lower()
    if said not in ("", _YES, _NO):
        hint = f"{_YES} or {_NO}"
        raise BadInput("is malformed", field=f"annotation {GPU_ANNOTATION}", value=said, hint=hint)
    claims = {
        read_text(read_mapping(claim).get("name"))
        for claim in read_list(pod.spec.get("resourceClaims"))
    }
    silent: list[tuple[str, Mapping[str, Any], VariableChanges]] = []
    found = False
    for path, raw in _containers(pod):
        changes = read_variables(raw)
        asks = _gpu_request(raw, pod.spec, kinds, claims, changes)
        if not asks.why and said == _YES:
            asks = _GpuRequest(f"the annotation {GPU_ANNOTATION}")
        if asks.why:
            found = True
            yield _container(path, raw, asks, changes)
        elif not changes.declines:
            silent.append((path, raw, changes))
    by_class = runtime_class(pod.spec, kinds)
    if by_class and not found:
        for path, raw, changes in silent:
            yield _container(
                path, raw, _GpuRequest(f"the runtime class {by_class}", False), changes
            )


def declines_gpus(pod: Pod) -> bool:
    """Return whether the pod's annotation says that it uses no GPU."""
    return pod.annotations.get(GPU_ANNOTATION, "").strip().lower() == _NO


def _container(
    path: str, raw: Mapping[str, Any], asks: _GpuRequest, changes: VariableChanges
) -> Container:
    name, image = read_text(raw.get("name")), read_text(raw.get("image")).strip()
    name = name or path.rpartition(".")[2]
    return Container(name, path, image, asks.why, changes, asks.sure, asks.resources)


def _containers(pod: Pod) -> Iterator[tuple[str, Mapping[str, Any]]]:
    base = f"{pod.path}." if pod.path else "spec."
    if pod.path and not pod.more:
        base += "spec."
    for name in _LISTS:
        for number, item in enumerate(read_list(pod.spec.get(name))):
            yield f"{base}{name}[{number}]", read_mapping(item)
    for name in pod.more:
        if isinstance(pod.spec.get(name), dict):
            yield f"{base}{name}", pod.spec[name]


def _gpu_request(
    raw: Mapping[str, Any],
    spec: Mapping[str, Any],
    kinds: Kinds,
    claims: set[str],
    changes: VariableChanges,
) -> _GpuRequest:
    """Return how a container asks; a request past the scheduler may get any GPU of the node."""
    resources = _requested(raw, kinds)
    other, sure = _indirect_request(raw, spec, claims, changes)
    if resources:
        return _GpuRequest(resources[0], resources=() if other else resources)
    return _GpuRequest(other, sure)


def _requested(raw: Mapping[str, Any], kinds: Kinds) -> tuple[str, ...]:
    resources = read_mapping(raw.get("resources"))
    found = (
        name
        for part in ("limits", "requests")
        for name, count in read_mapping(resources.get(part)).items()
        if kinds.is_gpu(name) and _is_positive(count)
    )
    return tuple(dict.fromkeys(found))


def _indirect_request(
    raw: Mapping[str, Any], spec: Mapping[str, Any], claims: set[str], changes: VariableChanges
) -> tuple[str, bool]:
    if changes.asks:
        return VISIBLE_DEVICES, True
    if place := gpu_mount(raw, spec):
        return f"the mount {place}", True
    for item in read_list(read_mapping(raw.get("resources")).get("claims")):
        if (name := read_text(read_mapping(item).get("name"))) in claims:
            return f"the resource claim {name}", False
    return "", True


def _is_positive(count: Any) -> bool:
    """Return whether a quantity is above zero; an unreadable quantity counts as above zero."""
    if isinstance(count, str):
        return count.strip().lstrip("+").rstrip("kMGTPEinum") not in ("0", "00", "0.0", "-0")
    return count is not None and count is not False and count != 0
