"""Read a bill of materials: recognise its format, and turn package URLs into components of a stack.

Source: https://github.com/package-url/purl-spec.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from packaging.utils import canonicalize_name

from compatgate.core.components import find_component
from compatgate.core.facts.packages import Packages
from compatgate.core.versions import parse_version
from compatgate.core.vocabulary import NEEDS_URL
from compatgate.discovery.lockfiles import stack_components
from compatgate.discovery.lockfiles.gpu_packages import find_gpu_packages
from compatgate.discovery.lockfiles.interface import ListedPackage, PackageOrigin
from compatgate.discovery.lockfiles.platform import Markers, Platform
from compatgate.discovery.lockfiles.text import decode_text
from compatgate.discovery.observations import (
    Conflict,
    Observation,
    find_cuda_conflicts,
    find_open_versions,
    find_unknown_cuda,
)
from compatgate.discovery.sbom.attestations import InTotoStatement
from compatgate.discovery.sbom.cyclonedx import CycloneDxJson, CycloneDxXml
from compatgate.discovery.sbom.interface import (
    LARGEST_FILE,
    Part,
    Reader,
    SbomReading,
    component_filter,
    import_library,
)
from compatgate.discovery.sbom.spdx import Spdx3, SpdxJson, SpdxTagValue, SpdxXml, SpdxYaml
from compatgate.discovery.signals import Signals, observe_package, read_signals
from compatgate.errors import BadInput, InconclusiveInput

_DOCUMENTS: tuple[Reader, ...] = (
    CycloneDxJson(),
    CycloneDxXml(),
    Spdx3(),
    SpdxJson(),
    SpdxXml(),
    SpdxTagValue(),
    SpdxYaml(),
)
READERS: tuple[Reader, ...] = (InTotoStatement(_DOCUMENTS), *_DOCUMENTS)
"""Readers of all standards and notations; a statement quotes a document, so it comes first."""
READ = (
    "CycloneDX (JSON, XML), SPDX 2.x (JSON, YAML, XML, tag-value), SPDX 3.0 (JSON-LD),"
    " or an in-toto statement or DSSE envelope about one of these"
)


def is_bill(text: str) -> bool:
    """Return whether a text is a bill of materials in a known format."""
    return any(reader.recognises(text) for reader in READERS)


def read_sbom(
    path_or_name: str | os.PathLike[str],
    data: bytes,
    *,
    known: Packages,
    signals: Mapping[str, Any],
    platform: Platform | None = None,
) -> SbomReading:
    """Read a bill of materials.

    Args:
        path_or_name: name of the document in messages.
        data: a document of one of the formats in `READ`.
        known: packages of the index that carry GPU code.
        signals: the fact file ``image_signals``, which names packages of Linux distributions.
        platform: decides the markers that uv writes for components; without a platform every
            component counts.

    Raises:
        BadInput: the document has another format, is malformed or too large, or the ``sbom``
            extra is not installed.
        Inconclusive: the document is empty or lists no component.
    """
    name = os.path.basename(os.fspath(path_or_name)) or "sbom"
    text = decode_text(data, name, LARGEST_FILE)
    reader = next((reader for reader in READERS if reader.recognises(text)), None)
    if reader is None:
        hint = f"give {READ}"
        raise BadInput("is not a bill of materials in a known format", field=name, hint=hint)
    bill = reader.read(text, name)
    if not bill.listed:
        hint = "point the generator at the image or environment"
        raise InconclusiveInput("lists no components", field=name, hint=hint)
    parts = _filter_platform(bill.parts, platform, name)
    found = observe_parts(parts, name, read_signals(signals), known)
    rest = {key: value for key, value in bill.rest.items() if key != "open"}
    measured = _observe_measured(parts, rest.get("measured", {}), found.observations, name)
    found = replace(found, observations=(*found.observations, *measured))
    left = [*bill.rest.get("open", ()), *found.open]
    if not found.observations and not left and not rest:
        left.append(f"{name} holds no component of a GPU stack")
    left += find_unknown_cuda(found.observations, found.of_index, name)
    left += find_open_versions(found.observations, name)
    conflicts = (*found.conflicts, *find_cuda_conflicts(found.observations))
    return SbomReading(
        bill.format, found.observations, conflicts, tuple(left[:50]), rest, found.origins
    )


def _observe_measured(
    parts: Iterable[Part], measured: Mapping[str, Any], seen: Iterable[Observation], file: str
) -> list[Observation]:
    """Observe parts with a record of their files as packages, whatever their names."""
    known = {one.component for one in seen}
    found: dict[str, Observation] = {}
    for part in parts:
        name = canonicalize_name(part.name)
        if name in measured and name not in known and part.version:
            origin = f"{file}: {part.ref}"
            found.setdefault(name, Observation(name, part.version, origin, "metadata"))
    return list(found.values())


def _filter_platform(
    parts: tuple[Part, ...], platform: Platform | None, file: str
) -> tuple[Part, ...]:
    if platform is None or not any(part.marker for part in parts):
        return parts
    markers = Markers(platform, file=file)
    return tuple(part for part in parts if markers.decide(part.marker) is not False)


_SOURCES = ("download_url", "repository_url", "vcs_url", "index_url")
_SYSTEM = ("deb", "rpm", "apk")
_COMMON_WORDS = frozenset({"ort", "tf", "python3"})


class BillComponents(Struct, frozen=True):
    """The components among the parts of a bill.

    Attributes:
        origins: sources of the files of GPU packages, by name.
        of_index: components whose packages all come from the package index.
    """

    observations: tuple[Observation, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    open: tuple[str, ...] = ()
    origins: dict[str, PackageOrigin] = {}
    of_index: frozenset[str] = frozenset()


def observe_parts(
    parts: Sequence[Part], file: str, signals: Signals, known: Packages
) -> BillComponents:
    """Return components among the parts of a bill of materials.

    Args:
        parts: parts of the document.
        file: name of the document, for the origin ``sbom.json: pkg:pypi/torch@2.4.1``.
        signals: packages of Linux distributions and their components.
        known: packages of the index that carry GPU code.
    """
    python: list[ListedPackage] = []
    conda_packages: list[ListedPackage] = []
    observations: list[Observation] = []
    left: list[str] = []
    for part in parts:
        origin = f"{file}: {part.ref}"
        purl = _parse_purl(part.purl)
        if purl is None:
            found = _observe_by_name(part.name, part.version, origin, left, "derived")
            observations += found
        elif purl.type == "pypi":
            python.append(_package_of_purl(purl, origin, part))
        elif purl.type == "conda":
            conda_packages.append(_package_of_purl(purl, origin, part))
        elif purl.type in _SYSTEM:
            version = purl.version or part.version
            seen = observe_package(purl.name, version, origin, signals, left)
            observations += [seen] if seen else []
        elif purl.type == "generic":
            version = purl.version or part.version
            observations += _observe_by_name(purl.name, version, origin, left, "metadata")
    from_python = stack_components.observe_pypi(python, ())
    from_conda = stack_components.observe_conda(conda_packages)
    gpu = find_gpu_packages([*python, *conda_packages], known)
    certain = (
        *from_python.observations,
        *from_conda.observations,
        *gpu.observations,
        *observations,
    )
    return BillComponents(
        _drop_guesses(certain),
        from_python.conflicts,
        (*left, *from_python.open, *from_conda.open, *gpu.open),
        gpu.origins,
        from_python.of_index
        - {seen.component for seen in (*from_conda.observations, *observations)},
    )


def _parse_purl(text: str) -> Any:
    """Parse a package URL; return None for other text."""
    if not text:
        return None
    try:
        return import_library("packageurl").PackageURL.from_string(text)
    except ValueError:
        return None


def _package_of_purl(purl: Any, origin: str, part: Part) -> ListedPackage:
    qualifiers = purl.qualifiers if isinstance(purl.qualifiers, dict) else {}
    return ListedPackage(
        purl.name,
        origin,
        version=purl.version or part.version or None,
        sources=tuple(qualifiers[key] for key in _SOURCES if key in qualifiers),
        build=qualifiers.get("build", ""),
        channel=stack_components.parse_channel(qualifiers.get("channel", "")),
        ecosystem="conda" if purl.type == "conda" else "pypi",
    )


def _observe_by_name(
    name: str, version: str, origin: str, left: list[str], confidence: Any
) -> list[Observation]:
    """Observe a part by its name alone: NVIDIA's archives, and parts without package URL."""
    text = name.rsplit("/", 1)[-1].lower()
    if len(text) > 60 or text in _COMMON_WORDS or not component_filter(text):
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


def _drop_guesses(found: Sequence[Observation]) -> tuple[Observation, ...]:
    """Drop observations by name alone where a package URL states the component's version."""
    known = {o.component for o in found if o.confidence == "metadata"}
    return tuple(o for o in found if o.confidence == "metadata" or o.component not in known)
