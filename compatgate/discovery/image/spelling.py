"""Versions and package names as images write them, brought into the form of a stack."""

from __future__ import annotations

import re

from compatgate.core.components import COMPONENTS
from compatgate.core.versions import parse_version
from compatgate.errors import BadInput

_BUILD_OF = ("cudnn", "nccl", "tensorrt")
"""Libraries with a build for each CUDA."""

_EPOCH = re.compile(r"^\d+:")
_CUDA = re.compile(r"cuda-?(\d{1,2})(?:\.(\d{1,2}))?")
_LOCAL = re.compile(r"\+cu\d{2,4}$")
_DEBIAN = re.compile(r"(?P<name>[a-z0-9][a-z0-9.+-]*)=(?P<version>\S+)")
_RPM = re.compile(r"(?P<name>[A-Za-z][\w.+-]*?)-(?P<version>\d[\w.~+]*)-(?P<release>\d[\w.~+]*)")


def split_package(text: str) -> tuple[str, str] | None:
    """Name and version of ``libcudnn8=8.9.6.50-1+cuda11.8`` or ``libcudnn8-8.9.6.50-1.cuda11.8``.

    The revision stays with the version, since it names the CUDA of the build.
    """
    if match := _DEBIAN.fullmatch(text):
        return match["name"], match["version"]
    # The name may hold numbers of its own (libcublas-12-4-12.4.5.8-1): the version is the last
    # but one of the parts.
    parts = text.rsplit("-", 2)
    if len(parts) == 3 and _RPM.fullmatch(text) and parts[1][:1].isdigit():
        return parts[0], f"{parts[1]}-{parts[2]}"
    return None


def tidy(component: str, text: str, package: str = "") -> str | None:
    """A version without what distributions add to it; None when it is none of this component.

    Args:
        component: canonical name.
        text: ``12.4.127-1``, ``"12.4.1-1"``, ``8.9.6.50-1+cuda11.8``, ``13.0.2.006``,
            ``8.2.1.8+cuda11.4.2.006``.
        package: that it is the version of; ``libcudnn9-cuda-12`` names the CUDA of the build.

    Returns:
        ``12.4.127``, ``12.4.1``, ``8.9.6.50+cu118``, ``13.0.2``, ``8.2.1.8+cu114``.
    """
    whole = _EPOCH.sub("", text.strip().strip("\"'"))
    if COMPONENTS[component].kind == "framework":
        return _checked(component, whole)
    label = _label(component, whole, package)
    plain = re.split(r"[-+~]", whole, maxsplit=1)[0]
    if component == "cuda":
        plain = ".".join(plain.split(".")[:3])  # the fourth part is a build number
    return _checked(component, plain + label)


def _label(component: str, whole: str, package: str) -> str:
    """``+cu118`` for the CUDA that the version or the package's name states."""
    if component not in _BUILD_OF:
        return ""
    if match := _LOCAL.search(whole):
        return match[0]
    match = _CUDA.search(whole.partition("+")[2] or whole.partition("-")[2])
    match = match or _CUDA.search(package)
    return f"+cu{match[1]}{match[2] or ''}" if match else ""


def _checked(component: str, version: str) -> str | None:
    try:
        parse_version(component, version)
    except BadInput:
        return None
    return version
