"""Packages of Linux distributions (dpkg, rpm, apk): which component one is, and its version.

Which names tell something is data (``matrix/facts/image_signals.yaml``, ``on_disk``); here is how
the versions are written: ``libcudnn9-cuda-12`` 9.1.0.70-1, ``libnccl2`` 2.21.5-1+cuda12.4,
``cuda-cudart-12-4`` 12.4.127-1, ``libcudnn8`` 8.9.7.29-1.cuda12.2 (RPM).
"""

from __future__ import annotations

import re

from compatgate.core.components import is_framework
from compatgate.core.versions import parse_version
from compatgate.core.vocabulary import BUILT_PER_CUDA
from compatgate.discovery.observed import Observation
from compatgate.discovery.signals import CUDA_COMPAT, Signals
from compatgate.errors import BadInput

_EPOCH = re.compile(r"^\d+:")
_CUDA = re.compile(r"cuda-?(\d{1,2})(?:\.(\d{1,2}))?")
_LOCAL = re.compile(r"\+cu\d{2,4}$")
_DEBIAN = re.compile(r"(?P<name>[a-z0-9][a-z0-9.+-]*)=(?P<version>\S+)")
_RPM = re.compile(r"(?P<name>[A-Za-z][\w.+-]*?)-(?P<version>\d[\w.~+]*)-(?P<release>\d[\w.~+]*)")


def observe(
    name: str, version: str, origin: str, signals: Signals, left: list[str]
) -> Observation | None:
    """The component that a package is; None for most packages.

    Args:
        name: of the package.
        version: with its revision, as the package manager writes it.
        origin: where it was seen.
        signals: which names tell something.
        left: receives what cannot be read, in sentences.
    """
    name = name.lower()
    component = signals.package(name)
    if component is None:
        return None
    if component == CUDA_COMPAT:  # its version is the driver's; its name tells the CUDA
        return Observation(CUDA_COMPAT, ".".join(re.findall(r"\d+", name)[:2]), origin, "metadata")
    if not version:
        left.append(f"{component}: no version is stated ({origin})")
        return None
    clean = tidy(component, version, name)
    if clean is None:
        left.append(f"{origin}: {version[:100]!r} is no version of {component}")
        return None
    return Observation(component, clean, origin, "metadata")


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
    if is_framework(component):
        return _checked(component, whole)
    label = _label(component, whole, package)
    plain = re.split(r"[-+~]", whole, maxsplit=1)[0]
    if component == "cuda":
        plain = ".".join(plain.split(".")[:3])  # the fourth part is a build number
    return _checked(component, plain + label)


def _label(component: str, whole: str, package: str) -> str:
    """``+cu118`` for the CUDA that the version or the package's name states."""
    if component not in BUILT_PER_CUDA:
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
