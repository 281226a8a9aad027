"""Load which objects carry pods, from ``matrix/kubernetes/kinds.yaml`` and an operator's file."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import msgspec
import yaml
from msgspec import UNSET, Meta, Struct, UnsetType, field

from compatgate.errors import BadInput
from compatgate.resources import matrix_dir

_LARGEST = 1024 * 1024
_PATH = r"^[A-Za-z][A-Za-z0-9-]*(\.([A-Za-z][A-Za-z0-9-]*|\*))*$(?!\n)"
PodPath = Annotated[str, Meta(pattern=_PATH, max_length=512)]
Word = Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9-]*$(?!\n)", max_length=128)]
RuntimeClass = Annotated[str, Meta(min_length=1, max_length=253)]
Group = Annotated[str, Meta(pattern=r"^([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?$(?!\n)", max_length=253)]


class PodKind(Struct, frozen=True, forbid_unknown_fields=True):
    """A kind of object that is or creates pods.

    Attributes:
        group: API group without version; empty: the core's.
        resource: plural name, for a webhook's rules.
        pod: the object is a pod itself.
        templates: paths of pod templates, objects with ``metadata`` and ``spec``.
        specs: paths of pod specs.
        containers: fields of such a spec that hold one container each.
    """

    kind: Word
    resource: Word
    group: Group = ""
    pod: bool = False
    templates: tuple[PodPath, ...] = ()
    specs: tuple[PodPath, ...] = ()
    containers: tuple[Word, ...] = ()


class KindsFile(Struct, frozen=True, forbid_unknown_fields=True):
    """The file.

    Attributes:
        resources: globs of resources that are GPUs.
        runtime_classes: that hand out GPUs to whatever image asks for them, by name; unset: the
            file does not say.
    """

    resources: tuple[Annotated[str, Meta(min_length=1, max_length=317)], ...] = ()
    kinds: tuple[PodKind, ...] = ()
    runtime_classes: tuple[RuntimeClass, ...] | UnsetType = field(
        default=UNSET, name="runtimeClasses"
    )


class Kinds(Struct, frozen=True, dict=True):
    """The kinds and resources that the webhook reads."""

    file: KindsFile

    def of(self, group: str, kind: str) -> PodKind | None:
        """Return a kind of any version of its group; None: it carries no pods."""
        return self._by_name.get((group, kind))

    def is_gpu(self, resource: str) -> bool:
        """Return whether a resource is a GPU or a part of one."""
        return self._pattern.fullmatch(resource) is not None

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
    def _pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(translate(glob) for glob in self.file.resources) or r"(?!)")


def load_kinds(others: Iterable[str] = ()) -> Kinds:
    """Return the shipped kinds, with an operator's files laid over them.

    Args:
        others: paths.

    Raises:
        BadInput: a file cannot be read, or is not of the form; names the place.
    """
    whole = _read(str(matrix_dir() / "kubernetes" / "kinds.yaml"))
    for path in others:
        more = _read(path)
        by_name = {(kind.group, kind.kind): kind for kind in (*whole.kinds, *more.kinds)}
        resources = dict.fromkeys((*whole.resources, *more.resources))
        classes = whole.runtime_classes if more.runtime_classes is UNSET else more.runtime_classes
        whole = KindsFile(tuple(resources), tuple(by_name.values()), classes)
    return Kinds(whole)


def _read(path: str) -> KindsFile:
    try:
        with Path(path).open("rb") as stream:
            raw = stream.read(_LARGEST + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadInput(f"cannot read {path!r}: {reason}", field="--kinds", value=path) from None
    if len(raw) > _LARGEST:
        raise BadInput("is too large for a file of kinds", field="--kinds", value=path)
    return parse_kinds(raw, path)


def parse_kinds(raw: bytes, origin: str) -> KindsFile:
    """Read a file of kinds.

    Raises:
        BadInput: it is not YAML, or not of the form.
    """
    try:
        document: Any = yaml.safe_load(raw)
        return msgspec.convert(document if document is not None else {}, KindsFile)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        said = " ".join(str(error).replace("`", "'").split())[:300]
        hint = "write it in the form of matrix/kubernetes/kinds.yaml"
        raise BadInput(f"{origin}: {said}", field="--kinds", hint=hint) from None
