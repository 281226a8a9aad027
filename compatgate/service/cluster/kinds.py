"""Load which objects carry pods, from ``matrix/kubernetes/kinds.yaml`` and an operator's file."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase, translate
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import yaml
from msgspec import UNSET, Meta, Struct, UnsetType, field

from compatgate.errors import BadInput, quote_error
from compatgate.resources import matrix_dir

_LARGEST = 1024 * 1024
_PATH = r"^[A-Za-z][A-Za-z0-9-]*(\.([A-Za-z][A-Za-z0-9-]*|\*))*$(?!\n)"
PodPath = Annotated[str, Meta(pattern=_PATH, max_length=512)]
Word = Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9-]*$(?!\n)", max_length=128)]
RuntimeClass = Annotated[str, Meta(min_length=1, max_length=253)]
Group = Annotated[str, Meta(pattern=r"^([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?$(?!\n)", max_length=253)]
Resource = Annotated[str, Meta(min_length=1, max_length=317)]
Scope = Literal["Namespaced", "Cluster"]
CLASS_RESOURCE = "deviceclass.resource.kubernetes.io/"
"""Prefix of the resource by which a pod asks for devices of a class. Source: KEP-5004."""


class PodKind(Struct, frozen=True, forbid_unknown_fields=True):
    """A kind of object that is or creates pods.

    Attributes:
        group: API group without version; empty: the core's.
        resource: plural name, for a webhook's rules.
        pod: the object is a pod itself.
        templates: paths of pod templates, objects with ``metadata`` and ``spec``.
        specs: paths of pod specs.
        containers: fields of such a spec that hold one container each.
        lists: paths in such a spec that hold more lists of containers.
        itself: such a spec is a container as well; it has an image or resources of its own.
        inherits: paths of objects whose node selector, affinity, tolerations, runtime class, image
            and annotations stand where such a spec has none; the first counts most.
        search: pods are searched for in the whole object, because their place varies.
        scope: ``Cluster``: its objects are in no namespace.
    """

    kind: Word
    resource: Word
    group: Group = ""
    pod: bool = False
    templates: tuple[PodPath, ...] = ()
    specs: tuple[PodPath, ...] = ()
    containers: tuple[Word, ...] = ()
    lists: tuple[PodPath, ...] = ()
    itself: bool = False
    inherits: tuple[PodPath, ...] = ()
    search: bool = False
    scope: Scope = "Namespaced"


class SharedResource(Struct, frozen=True, forbid_unknown_fields=True):
    """A resource that gives a part of a GPU, its memory or its cores.

    ``of``: resource that a node must have for it; empty: the resource itself.
    """

    name: Resource
    of: Annotated[str, Meta(max_length=317)] = ""


class SharedAnnotation(Struct, frozen=True, forbid_unknown_fields=True):
    """An annotation of pods that asks a scheduler for a part of a GPU, or an operator for a claim.

    Attributes:
        of: resource that a node must have for it; empty where the value names a class.
        container: annotation that names the container which gets it, else the pod's first.
        device_class: its value is a class of devices, for which an operator makes the claim.
    """

    name: Annotated[str, Meta(min_length=1, max_length=317)]
    of: Annotated[str, Meta(max_length=317)] = ""
    container: Annotated[str, Meta(max_length=317)] = ""
    device_class: bool = field(default=False, name="deviceClass")


class SharedGpus(Struct, frozen=True, forbid_unknown_fields=True):
    """The ways in which schedulers of parts of GPUs are asked."""

    resources: tuple[SharedResource, ...] = ()
    annotations: tuple[SharedAnnotation, ...] = ()


class StatedClaim(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Claims whose devices an operator states, where the gate does not read them in the cluster.

    Name and namespaces are globs; only for namespaces where nobody else may create such claims.
    """

    name: Annotated[str, Meta(min_length=1, max_length=253)]
    device_classes: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=253)], ...], Meta(min_length=1)
    ]
    namespaces: tuple[Annotated[str, Meta(min_length=1, max_length=63)], ...] = ("*",)

    def covers(self, namespace: str, name: str) -> bool:
        """Return whether the statement is about a claim or template."""
        return fnmatchcase(name, self.name) and any(
            fnmatchcase(namespace, glob) for glob in self.namespaces
        )


class ExcludedNamespace(Struct, frozen=True, forbid_unknown_fields=True):
    """A namespace that the webhook leaves out unless told otherwise, with the reason.

    ``operator``: the GPU Operator runs here; may be named anew at installation.
    """

    name: Annotated[str, Meta(pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$(?!\n)", max_length=63)]
    reason: Annotated[str, Meta(min_length=1, max_length=300)]
    operator: bool = False


class KindsFile(Struct, frozen=True, forbid_unknown_fields=True):
    """The file.

    Attributes:
        other_device_classes: globs of classes of other devices; a class of neither list may be a
            GPU.
        aliases: short names of resources, as some kinds write them.
        resource_fields: fields of a container that state its resources; the first counts most.
        runtime_classes: that hand out GPUs to whatever image asks for them, by name; unset: the
            file does not say.
    """

    resources: tuple[Resource, ...] = ()
    kinds: tuple[PodKind, ...] = ()
    runtime_classes: tuple[RuntimeClass, ...] | UnsetType = field(
        default=UNSET, name="runtimeClasses"
    )
    device_classes: tuple[Annotated[str, Meta(min_length=1, max_length=253)], ...] = field(
        default=(), name="deviceClasses"
    )
    other_device_classes: tuple[Annotated[str, Meta(min_length=1, max_length=253)], ...] = field(
        default=(), name="otherDeviceClasses"
    )
    aliases: dict[Word, Resource] = {}
    resource_fields: tuple[Word, ...] = field(default=(), name="resourceFields")
    shared: SharedGpus = SharedGpus()
    excluded_namespaces: tuple[ExcludedNamespace, ...] = field(
        default=(), name="excludedNamespaces"
    )
    claims: tuple[StatedClaim, ...] = ()


class Kinds(Struct, frozen=True, dict=True):
    """The kinds and resources that the webhook reads."""

    file: KindsFile

    def of(self, group: str, kind: str) -> PodKind | None:
        """Return a kind of any version of its group; None: it carries no pods."""
        return self._by_name.get((group, kind))

    def is_gpu(self, resource: str) -> bool:
        """Return whether a resource is a GPU or a part of one, or may be one."""
        device_class = resource.removeprefix(CLASS_RESOURCE)
        if device_class != resource:
            return self.may_be_gpu_class(device_class)
        return self.is_surely_gpu(resource)

    def is_surely_gpu(self, resource: str) -> bool:
        """Return whether a resource is known as a GPU or a part of one."""
        return resource in self._names or self._pattern.fullmatch(resource) is not None

    def is_shared(self, resource: str) -> bool:
        """Return whether a resource is a part of a GPU that several containers may share."""
        return self._shared_pattern.fullmatch(resource) is not None

    def is_gpu_class(self, name: str) -> bool:
        """Return whether the devices of a class of dynamic resource allocation are GPUs."""
        return self._class_pattern.fullmatch(name) is not None

    def may_be_gpu_class(self, name: str) -> bool:
        """Return whether nothing shows that the devices of a class are no GPUs."""
        return self.is_gpu_class(name) or self._other_classes.fullmatch(name) is None

    def classes_of_claim(self, namespace: str, name: str) -> tuple[str, ...] | None:
        """Return the device classes that an operator states for a claim; None: none are."""
        for one in reversed(self.file.claims):
            if one.covers(namespace, name):
                return one.device_classes
        return None

    def resource_of_node(self, resource: str) -> str:
        """Return the resource that a node must have for a request of this one."""
        resource = self.file.aliases.get(resource, resource)
        if not self.is_shared(resource):
            return resource
        for one in self.file.shared.resources:
            if one.of and fnmatchcase(resource, one.name):
                return one.of
        return resource

    @cached_property
    def gpu_resources(self) -> tuple[str, ...]:
        """Return the globs of every resource that is a GPU or a part of one."""
        classes = (CLASS_RESOURCE + glob for glob in self.file.device_classes)
        shared = (one.name for one in self.file.shared.resources)
        return tuple(dict.fromkeys((*self.file.resources, *shared, *classes)))

    @cached_property
    def resource_fields(self) -> tuple[str, ...]:
        """Return the fields of a container that state its resources."""
        return tuple(dict.fromkeys(("resources", *self.file.resource_fields)))

    def hands_out(self, runtime_class: str) -> bool:
        """Return whether a runtime class hands out GPUs that the pod's resources do not name."""
        return runtime_class in self.runtime_classes

    @property
    def runtime_classes(self) -> tuple[str, ...]:
        """Return the names of the runtime classes that hand out GPUs."""
        return self.file.runtime_classes or ()

    @cached_property
    def _by_name(self) -> dict[tuple[str, str], PodKind]:
        return {(kind.group, kind.kind): kind for kind in self.file.kinds}

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset((*self.gpu_resources, *self.file.aliases))

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return _any_of(glob for glob in self._names if _WILDCARD.search(glob))

    @cached_property
    def _shared_pattern(self) -> re.Pattern[str]:
        return _any_of(one.name for one in self.file.shared.resources)

    @cached_property
    def _class_pattern(self) -> re.Pattern[str]:
        return _any_of(self.file.device_classes)

    @cached_property
    def _other_classes(self) -> re.Pattern[str]:
        """Match the classes that an operator knows: also those of the claims that files state."""
        stated = (name for claim in self.file.claims for name in claim.device_classes)
        return _any_of((*self.file.other_device_classes, *stated))


_WILDCARD = re.compile(r"[*?[]")


def _any_of(globs: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(translate(glob) for glob in globs) or r"(?!)")


@cache
def shipped_kinds() -> Kinds:
    """Return the shipped kinds, read once: what is a GPU where no operator's file is at hand."""
    return load_kinds()


def load_kinds(others: Iterable[str] = ()) -> Kinds:
    """Return the shipped kinds, with an operator's files laid over them."""
    whole = _shipped_file()
    for path in others:
        whole = _lay_over(whole, _read(path))
    return Kinds(whole)


@cache
def _shipped_file() -> KindsFile:
    """Read the shipped file once, by the parser in C.

    An operator's file is read by the parser in Python, which survives any nesting.
    """
    raw = (matrix_dir() / "kubernetes" / "kinds.yaml").read_bytes()
    return msgspec.convert(yaml.load(raw, yaml.CSafeLoader), KindsFile)


def _lay_over(whole: KindsFile, more: KindsFile) -> KindsFile:
    """Return a file with another one laid over it; lists grow, runtime classes are replaced."""
    kinds = {(kind.group, kind.kind): kind for kind in (*whole.kinds, *more.kinds)}
    namespaces = {one.name: one for one in (*whole.excluded_namespaces, *more.excluded_namespaces)}
    resources = {one.name: one for one in (*whole.shared.resources, *more.shared.resources)}
    annotations = {one.name: one for one in (*whole.shared.annotations, *more.shared.annotations)}
    return KindsFile(
        _joined(whole.resources, more.resources),
        tuple(kinds.values()),
        whole.runtime_classes if more.runtime_classes is UNSET else more.runtime_classes,
        _joined(whole.device_classes, more.device_classes),
        _joined(whole.other_device_classes, more.other_device_classes),
        {**whole.aliases, **more.aliases},
        _joined(whole.resource_fields, more.resource_fields),
        SharedGpus(tuple(resources.values()), tuple(annotations.values())),
        tuple(namespaces.values()),
        (*whole.claims, *more.claims),
    )


def _joined(first: Iterable[str], second: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *second)))


def _read(path: str) -> KindsFile:
    try:
        with Path(path).open("rb") as stream:
            raw = stream.read(_LARGEST + 1)
    except (OSError, ValueError) as error:
        reason = quote_error(error)
        raise BadInput(f"cannot read {path!r}: {reason}", field="--kinds", value=path) from None
    if len(raw) > _LARGEST:
        raise BadInput("is too large for a kinds file", field="--kinds", value=path)
    return parse_kinds(raw, path)


def parse_kinds(raw: bytes, origin: str) -> KindsFile:
    """Read a file of kinds."""
    try:
        document: Any = yaml.safe_load(raw)
        return msgspec.convert(document if document is not None else {}, KindsFile)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        hint = f"write it in the form of {matrix_dir() / 'kubernetes' / 'kinds.yaml'}"
        raise BadInput(
            f"{origin} cannot be read: {quote_error(error)}", field="--kinds", hint=hint
        ) from None
