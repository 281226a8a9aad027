"""Find the pods of an object, and their containers that ask for GPUs.

Sources: NVIDIA/nvidia-container-toolkit ``internal/config/image/cuda_image.go``. NVIDIA's
runtime hands out what ``/dev/null``, mounted below a certain folder, names; else what the
variable ``NVIDIA_VISIBLE_DEVICES`` names, a pod's before the image's; else, to an image with
``CUDA_VERSION`` and without ``NVIDIA_REQUIRE_CUDA``, everything. A node may forbid either way.
The runtime reads requirements from the container's environment, where a pod's variable replaces
the image's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from compatgate.errors import BadInput
from compatgate.kit.kubernetes import find_at, read_labels, read_list, read_mapping, read_text
from compatgate.service.cluster.claims import (
    NO_CLAIMS,
    Claim,
    KnownClaims,
    claims_of,
    stated_claims,
)
from compatgate.service.cluster.kinds import CLASS_RESOURCE, Kinds, PodKind
from compatgate.service.cluster.volumes import (
    clean_path,
    hidden_packages,
    programs_on_volumes,
    read_mounts,
    replaced_parts,
)

FOLDER = "/var/run/nvidia-container-devices"
_NOT_GPUS = "imex/"
_NULL = "/dev/null"


def gpu_mount(container: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    """Return the mount by which a container asks NVIDIA's runtime for GPUs, or nothing."""
    places = [
        read_text(read_mapping(m).get("mountPath"))
        for m in read_list(container.get("volumeMounts"))
    ]
    if not any("nvidia-container-devices" in place for place in places):
        return ""
    nulls = {
        read_text(v.get("name"))
        for v in map(read_mapping, read_list(spec.get("volumes")))
        if clean_path(read_text(read_mapping(v.get("hostPath")).get("path"))) == _NULL
    }
    for mount in map(read_mapping, read_list(container.get("volumeMounts"))):
        place = clean_path(read_text(mount.get("mountPath")))
        device = place.removeprefix(f"{FOLDER}/")
        if device != place and not device.startswith(_NOT_GPUS) and mount.get("name") in nulls:
            return place
    return ""


def runtime_class(spec: Mapping[str, Any], kinds: Kinds) -> str:
    """Return the pod's runtime class if it hands out GPUs, else empty text."""
    name = read_text(spec.get("runtimeClassName"))
    return name if name and kinds.hands_out(name) else ""


VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
_REQUIRE, _MAIN = "NVIDIA_REQUIRE_", "NVIDIA_REQUIRE_CUDA"
_DISABLE_REQUIRE = "NVIDIA_DISABLE_REQUIRE"
_JETPACK = "NVIDIA_REQUIRE_JETPACK"
_LIBRARIES = "LD_LIBRARY_PATH"
_READ_VARIABLES = ("NVIDIA_", _LIBRARIES, "PYTHON", "PATH")
"""Beginnings of the variables that count; most others of a pod are skipped at once."""
_TRUE = ("1", "t", "T", "TRUE", "true", "True")
NO_DEVICES = ("", "void", "none")


class VariableChanges(Struct, frozen=True):
    """The effect of the variables on a question, with what they leave open or unread, in words.

    They may ask the container runtime for GPUs, decline any, or lead an interpreter to other
    packages.
    """

    set: dict[str, Any] = {}
    open: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    asks: bool = False
    declines: bool = False
    leads: bool = False


_NO_CHANGES = VariableChanges()


def read_variables(container: Mapping[str, Any]) -> VariableChanges:
    """Read the variables of a container of a pod spec; of two of one name the last counts."""
    env: dict[str, Mapping[str, Any]] = {}
    for item in read_list(container.get("env")):
        name = item.get("name") if isinstance(item, dict) else None
        if isinstance(name, str) and name.startswith(_READ_VARIABLES):
            env[name] = item
    if not env and "envFrom" not in container:
        return _NO_CHANGES
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
    if _MAIN in required:  # they replace the image's, whose main one may stay otherwise
        changed["require"] = [value for value in required.values() if value] or None
    else:
        left += [f"{name} is set in the pod, and was not checked" for name in required]
    if read_list(container.get("envFrom")):
        unread.append("variables of config maps and secrets (envFrom) were not read")
    devices = env.get(VISIBLE_DEVICES, {"value": ""})
    asks = "valueFrom" in devices or read_text(devices.get("value")) not in NO_DEVICES
    declines = VISIBLE_DEVICES in env and not asks
    leads = any(name == "PATH" or name.startswith("PYTHON") for name in env)
    return VariableChanges(changed, tuple(left), tuple(unread), asks, declines, leads)


GPU_ANNOTATION = "compatgate.dev/gpu"
"""Annotation: ``true``, every container uses GPUs. ``false`` exempts nothing: whoever asks for GPUs
does not decide that they are none."""
_LISTS = ("initContainers", "containers", "ephemeralContainers")
_INHERITED = ("nodeSelector", "affinity", "tolerations", "runtimeClassName", "image")
_YES, _NO = "true", "false"


class Pod(Struct, frozen=True):
    """A pod, or the template of one.

    ``annotations``: of the object, overlaid with those of the template.
    """

    path: str
    annotations: Mapping[str, str]
    spec: Mapping[str, Any]
    more: tuple[str, ...] = ()
    lists: tuple[str, ...] = ()
    itself: bool = False


class GpuRequest(Struct, frozen=True):
    """A container's request for GPUs, and what says that it is one; empty: it requests none.

    Attributes:
        sure: that these are GPUs; False: a claim or a device class that may be something else, or
            an image that may ask for none.
        resources: that a node must have for it; empty: it asks in a way that does not say, perhaps
            beside one that does.
        requested: resources that its limits and requests name, as a node has them; the pod may
            tolerate their taints.
        shared: it gets a part of a GPU that it shares with others.
    """

    why: str
    sure: bool = True
    resources: tuple[str, ...] = ()
    requested: tuple[str, ...] = ()
    shared: bool = False


class Container(GpuRequest, frozen=True, kw_only=True):
    """A container that asks for GPUs.

    ``command``: what runs in place of the image's own; empty where it is not known; None: that one.
    """

    name: str
    path: str
    image: str
    changes: VariableChanges
    command: tuple[str, ...] | None = None
    mounts: tuple[str, ...] = ()


_NOTHING = GpuRequest("")


class _Claims(Struct, frozen=True):
    """The claims of a pod by name, and those that are known in its namespace."""

    of_pod: Mapping[str, Claim]
    known: KnownClaims


def pods_of(document: Mapping[str, Any], kind: PodKind) -> Iterator[Pod]:
    """Yield the pods that an object is, or makes, at the places that its kind names."""
    own = read_labels(read_mapping(document.get("metadata")).get("annotations"))
    if kind.pod:
        yield Pod("spec", own, read_mapping(document.get("spec")))
    for path in kind.templates:
        for where, found in find_at(document, path):
            template = read_mapping(found)
            annotations = {**own, **_annotations(template)}
            yield Pod(f"{where}.spec", annotations, read_mapping(template.get("spec")))
    if kind.specs:
        outer = [read_mapping(o) for path in kind.inherits for _, o in find_at(document, path)]
        for each in reversed(outer):
            own |= _annotations(each)
    for path in kind.specs:
        for where, found in find_at(document, path):
            spec = {**inherited(outer), **read_mapping(found)}
            annotations = {**own, **_annotations(spec)}
            yield Pod(where, annotations, spec, kind.containers, kind.lists, kind.itself)


def inherited(outer: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the fields of objects around a spec that stand where it has none; the first counts."""
    return {name: one[name] for one in reversed(outer) for name in _INHERITED if name in one}


def _annotations(spec: Mapping[str, Any]) -> dict[str, str]:
    """Return the annotations of an object: its own, and those that its metadata has."""
    stated = read_labels(read_mapping(spec.get("metadata")).get("annotations"))
    return {**read_labels(spec.get("annotations")), **stated}


def count_containers(pod: Pod) -> int:
    """Return the number of containers of a pod, with GPUs and without; look at none of them."""
    lists = [pod.spec.get(name) for name in _LISTS]
    lists += [found for path in pod.lists for _, found in find_at(pod.spec, path)]
    named = sum(1 for name in pod.more if isinstance(pod.spec.get(name), dict))
    return sum(len(read_list(one)) for one in lists) + named + pod.itself


def gpu_containers(pod: Pod, kinds: Kinds, known: KnownClaims = NO_CLAIMS) -> Iterator[Container]:
    """Return the containers of a pod that ask for GPUs, by whatever means Kubernetes offers.

    Of a pod in which none does, and whose runtime class hands out GPUs to images that ask for them,
    every container counts that does not decline: what else would it choose that class for.

    ``known``: claims of the pod's namespace; one that is not among them is taken for a GPU.
    """
    said = pod.annotations.get(GPU_ANNOTATION, "").strip().lower()
    if said not in ("", _YES, _NO):
        hint = f"{_YES} or {_NO}"
        raise BadInput("is malformed", field=f"annotation {GPU_ANNOTATION}", value=said, hint=hint)
    claims = claims_of(pod.spec, known)
    parts = _annotated_parts(pod, kinds)
    silent: list[tuple[str, Mapping[str, Any], VariableChanges]] = []
    found = False
    for path, raw in _containers(pod):
        changes = read_variables(raw)
        asks = _gpu_request(raw, pod.spec, kinds, _Claims(claims, known), changes)
        if not asks.why:
            asks = parts.get(path, asks)
        if not asks.why and said == _YES:
            asks = GpuRequest(f"the annotation {GPU_ANNOTATION}")
        if asks.why:
            found = True
            yield _container(path, raw, asks, changes)
        elif not changes.declines:
            silent.append((path, raw, changes))
    by_class = runtime_class(pod.spec, kinds)
    if by_class and not found:
        asks = GpuRequest(f"the runtime class {by_class}", False)
        for path, raw, changes in silent:
            yield _container(path, raw, asks, changes)


def declines_gpus(pod: Pod) -> bool:
    """Return whether the pod's annotation says that it uses no GPU."""
    return pod.annotations.get(GPU_ANNOTATION, "").strip().lower() == _NO


def _container(
    path: str, raw: Mapping[str, Any], asks: GpuRequest, changes: VariableChanges
) -> Container:
    mounts = read_mounts(raw)
    interpreters, programs = programs_on_volumes(raw, mounts)
    return Container(
        **asdict(asks),
        name=read_text(raw.get("name")) or path.rpartition(".")[2],
        path=path,
        image=_image(raw.get("image")),
        command=_read_command(raw, changes),
        mounts=mounts,
        changes=replace(
            changes,
            open=(*changes.open, *hidden_packages(mounts), *interpreters),
            unread=(*changes.unread, *replaced_parts(raw, mounts), *programs),
        ),
    )


def _read_command(raw: Mapping[str, Any], changes: VariableChanges) -> tuple[str, ...] | None:
    """Return what a container runs; variables may lead an interpreter to other packages."""
    if changes.leads or raw.get("envFrom"):
        return ()
    command = read_list(raw.get("command"))
    if not command:  # arguments alone follow the image's entry point, or are the command
        return () if raw.get("command") or raw.get("args") else None
    return tuple(word if isinstance(word, str) else "" for word in command)


def _image(value: Any) -> str:
    """Return the reference of an image, which some kinds state by repository and tag."""
    if isinstance(value, dict):
        repository, tag = read_text(value.get("repository")), read_text(value.get("tag"))
        return f"{repository}:{tag}".strip(": ")
    return read_text(value).strip()


def _containers(pod: Pod) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name in _LISTS:
        for number, item in enumerate(read_list(pod.spec.get(name))):
            yield f"{pod.path}.{name}[{number}]", read_mapping(item)
    for path in pod.lists:
        for where, found in find_at(pod.spec, path):
            for number, item in enumerate(read_list(found)):
                yield f"{pod.path}.{where}[{number}]", read_mapping(item)
    for name in pod.more:
        if isinstance(pod.spec.get(name), dict):
            yield f"{pod.path}.{name}", pod.spec[name]
    if pod.itself:
        yield pod.path, pod.spec


def _annotated_parts(pod: Pod, kinds: Kinds) -> dict[str, GpuRequest]:
    """Return the containers, by path, to which an annotation gives a GPU or a part of one."""
    found: dict[str, GpuRequest] = {}
    for one in kinds.file.shared.annotations:
        value = pod.annotations.get(one.name)
        resource = f"{CLASS_RESOURCE}{value}" if one.device_class else one.of
        asked = value and kinds.is_gpu(resource) if one.device_class else _is_positive(value)
        if not asked:
            continue
        shared = not one.device_class
        asks = GpuRequest(f"the annotation {one.name}", resources=(resource,), shared=shared)
        every = list(_containers(pod))
        named = pod.annotations.get(one.container, "") if one.container else ""
        meant = [path for path, raw in every if named and raw.get("name") == named]
        first = next((path for path, _ in every if ".containers[" in path), None)
        if not meant and first and not named:
            meant = [first]
        for path in meant or [path for path, _ in every]:
            found.setdefault(path, asks)
    return found


def _gpu_request(
    raw: Mapping[str, Any],
    spec: Mapping[str, Any],
    kinds: Kinds,
    claims: _Claims,
    changes: VariableChanges,
) -> GpuRequest:
    """Return how a container asks; a request past the scheduler may get any GPU of the node."""
    resources = _requested(raw, kinds)
    other = _indirect_request(raw, spec, kinds, claims, changes)
    if not resources:
        return other
    shared = any(kinds.is_shared(name) for name in resources)
    own = tuple(dict.fromkeys(map(kinds.resource_of_node, resources)))
    needed = () if other.why and not other.resources else (*own, *other.resources)
    sure = any(map(kinds.is_surely_gpu, resources)) or bool(other.why and other.sure)
    return GpuRequest(resources[0], sure, needed, own, shared)


def _requested(raw: Mapping[str, Any], kinds: Kinds) -> tuple[str, ...]:
    found = [
        name
        for field in kinds.resource_fields
        if isinstance(stated := raw.get(field), dict)
        for part in ("limits", "requests")
        for name, count in read_mapping(stated.get(part)).items()
        if kinds.is_gpu(name) and _is_positive(count)
    ]
    if "gpu" in raw:  # kubeflow/spark-operator: {name: ..., quantity: 1}
        whole = read_mapping(raw["gpu"])
        name = read_text(whole.get("name"))
        if name and kinds.is_gpu(name) and _is_positive(whole.get("quantity")):
            found.append(name)
    return tuple(dict.fromkeys(found))


def _indirect_request(
    raw: Mapping[str, Any],
    spec: Mapping[str, Any],
    kinds: Kinds,
    claims: _Claims,
    changes: VariableChanges,
) -> GpuRequest:
    if changes.asks:
        return GpuRequest(VISIBLE_DEVICES)
    if place := gpu_mount(raw, spec):
        return GpuRequest(f"the mount {place}")
    if not claims.of_pod and "draResources" not in raw:
        return _NOTHING
    used = [(one, "") for one in stated_claims(raw, claims.known)]
    for item in map(read_mapping, read_list(read_mapping(raw.get("resources")).get("claims"))):
        if claim := claims.of_pod.get(read_text(item.get("name"))):
            used.append((claim, read_text(item.get("request"))))
    if unknown := next((one for one, _ in used if one.requests is None), None):
        return GpuRequest(f"the resource claim {unknown.name}", False)
    every = (name for claim, request in used for name in claim.classes(request))
    classes = [name for name in every if kinds.may_be_gpu_class(name)]
    if not classes:
        return _NOTHING
    known = next((name for name in classes if kinds.is_gpu_class(name)), None)
    why = f"a resource claim for {known or classes[0] or 'a device without a class'}"
    resources = tuple(dict.fromkeys(CLASS_RESOURCE + name for name in classes))
    return GpuRequest(why, known is not None, resources)


def _is_positive(count: Any) -> bool:
    """Return whether a quantity is above zero; an unreadable quantity counts as above zero."""
    if isinstance(count, str):
        return count.strip().lstrip("+").rstrip("kMGTPEinum") not in ("0", "00", "0.0", "-0")
    return count is not None and count is not False and count != 0
