"""From package URLs to components of a stack.

Source: https://github.com/package-url/purl-spec.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from compatgate.core.components import find_component
from compatgate.core.facts.packages import Packages
from compatgate.core.versions import parse_version
from compatgate.core.vocabulary import NEEDS_URL
from compatgate.discovery import packages
from compatgate.discovery.lockfiles import conda, pypi
from compatgate.discovery.lockfiles.gpu_packages import gpu_packages
from compatgate.discovery.lockfiles.interface import Origin, Package
from compatgate.discovery.observed import Conflict, Observation
from compatgate.discovery.sbom.bounds import library
from compatgate.discovery.sbom.interface import Part
from compatgate.discovery.sbom.relevant import may_be_component
from compatgate.discovery.signals import Signals
from compatgate.errors import BadInput

_SOURCES = ("download_url", "repository_url", "vcs_url", "index_url")
_SYSTEM = ("deb", "rpm", "apk")
_COMMON_WORDS = frozenset({"ort", "tf", "python3"})


class Found(Struct, frozen=True):
    """What the parts come to.

    Attributes:
        origins: where the files of GPU packages are, by name.
        of_index: components whose packages are all from the package index.
    """

    observations: tuple[Observation, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    open: tuple[str, ...] = ()
    origins: dict[str, Origin] = {}
    of_index: frozenset[str] = frozenset()


def observe(parts: Sequence[Part], file: str, signals: Signals, known: Packages) -> Found:
    """Components among the parts of a bill of materials.

    Args:
        parts: of the document.
        file: its name, for the origin ``sbom.json: pkg:pypi/torch@2.4.1``.
        signals: which packages of Linux distributions tell something.
        known: which packages of the index carry GPU code.
    """
    python: list[Package] = []
    conda_packages: list[Package] = []
    observations: list[Observation] = []
    left: list[str] = []
    for part in parts:
        origin = f"{file}: {part.ref}"
        purl = _parse(part.purl)
        if purl is None:
            found = _by_name(part.name, part.version, origin, left, "derived")
            observations += found
        elif purl.type == "pypi":
            python.append(_package(purl, origin, part))
        elif purl.type == "conda":
            conda_packages.append(_package(purl, origin, part))
        elif purl.type in _SYSTEM:
            version = purl.version or part.version
            seen = packages.observe(purl.name, version, origin, signals, left)
            observations += [seen] if seen else []
        elif purl.type == "generic":
            version = purl.version or part.version
            observations += _by_name(purl.name, version, origin, left, "metadata")
    from_python = pypi.observe(python, ())
    from_conda = conda.observe(conda_packages)
    gpu = gpu_packages([*python, *conda_packages], known)
    certain = (
        *from_python.observations,
        *from_conda.observations,
        *gpu.observations,
        *observations,
    )
    return Found(
        _without_guesses(certain),
        from_python.conflicts,
        (*left, *from_python.open, *from_conda.open, *gpu.open),
        gpu.origins,
        from_python.of_index
        - {seen.component for seen in (*from_conda.observations, *observations)},
    )


def _parse(text: str) -> Any:
    """A package URL; None when it is none."""
    if not text:
        return None
    try:
        return library("packageurl").PackageURL.from_string(text)
    except ValueError:
        return None


def _package(purl: Any, origin: str, part: Part) -> Package:
    qualifiers = purl.qualifiers if isinstance(purl.qualifiers, dict) else {}
    return Package(
        purl.name,
        origin,
        version=purl.version or part.version or None,
        sources=tuple(qualifiers[key] for key in _SOURCES if key in qualifiers),
        build=qualifiers.get("build", ""),
        channel=conda.channel_of(qualifiers.get("channel", "")),
        ecosystem="conda" if purl.type == "conda" else "pypi",
    )


def _by_name(
    name: str, version: str, origin: str, left: list[str], confidence: Any
) -> list[Observation]:
    """A part that only its name identifies: NVIDIA's archives, and parts without package URL."""
    text = name.rsplit("/", 1)[-1].lower()
    if len(text) > 60 or text in _COMMON_WORDS or not may_be_component(text):
        return []
    resolved = find_component(text)
    if resolved is None:
        return []
    component = resolved.component.name
    if component in NEEDS_URL:
        return []
    if not version:
        left.append(f"{component}: no version is stated ({origin})")
        return []
    try:
        parse_version(component, version)
    except BadInput as error:
        left.append(f"{origin}: {error.problem}")
        return []
    return [Observation(component, version, origin, confidence)]


def _without_guesses(found: Sequence[Observation]) -> tuple[Observation, ...]:
    """What is known by name only is left out where a package URL says the component's version."""
    known = {o.component for o in found if o.confidence == "metadata"}
    return tuple(o for o in found if o.confidence == "metadata" or o.component not in known)
