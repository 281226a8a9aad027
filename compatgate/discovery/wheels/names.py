"""What the names of a wheel's files say: alternatives, and the torch that it was built for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from packaging.requirements import InvalidRequirement, Requirement

from compatgate.core.package_builds import torch_of_label

_NUMBER_OF_CUDA = re.compile(r"(?<![a-z])(cuda|cu|rocm)[_-]?\d{2,3}(?![0-9a-z])")
_FOLDER = re.compile(r"(?:sm|cu|cuda|rocm|arch|compute)[_-]?\d{2,3}[af]?(?:_\d)?")


def alternatives(paths: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    """Groups of libraries of which a program loads one.

    Those are libraries of one folder whose names differ in the number of a CUDA or ROCm release
    alone (``libbitsandbytes_cuda126.so``), and libraries of one name in sibling folders that are
    named after an architecture or a release (``sm90/common_ops.abi3.so``).
    """
    groups: dict[str, list[str]] = {}
    for path in paths:
        *folders, name = path.split("/")
        plain = "/".join("*" if _FOLDER.fullmatch(folder) else folder for folder in folders)
        pattern = f"{plain}/" + _NUMBER_OF_CUDA.sub(r"\1*", name)
        if "*" in pattern:
            groups.setdefault(pattern, []).append(path)
    return tuple(tuple(sorted(group)) for _, group in sorted(groups.items()) if len(group) > 1)


def torch_of_build(requires: Sequence[str], version: str) -> str | None:
    """The torch release that a wheel was built for, as ``2.8``, from its pins or its local label.

    A label is like that of ``2.8.3+cu12torch2.8cxx11abiTRUE`` or ``0.7.3+pt28cu128``.
    """
    for text in requires:
        if (release := _pinned_torch(text)) is not None:
            return release
    return torch_of_label(version.partition("+")[2])


def _pinned_torch(text: str) -> str | None:
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return None
    if requirement.name != "torch" or "extra" in str(requirement.marker or ""):
        return None
    for specifier in requirement.specifier:
        parts = specifier.version.partition("+")[0].split(".")
        if specifier.operator in ("==", "===") and len(parts) >= 2 and parts[1].isdigit():
            return ".".join(parts[:2])
    return None
