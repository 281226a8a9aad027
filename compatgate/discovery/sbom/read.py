"""From a bill of materials to observations of a stack."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace
from packaging.utils import canonicalize_name

from compatgate.core.facts.packages import Packages
from compatgate.discovery.lockfiles.cuda_builds import several_versions, two_cudas, without_cuda
from compatgate.discovery.lockfiles.platform import Markers, Platform
from compatgate.discovery.lockfiles.text import decode
from compatgate.discovery.observed import Observation
from compatgate.discovery.sbom.bounds import LARGEST_FILE
from compatgate.discovery.sbom.cyclonedx import CycloneDxJson, CycloneDxXml
from compatgate.discovery.sbom.interface import Part, Reader, SbomReading
from compatgate.discovery.sbom.purl import observe
from compatgate.discovery.sbom.spdx import SpdxJson, SpdxTagValue, SpdxXml, SpdxYaml
from compatgate.discovery.signals import read_signals
from compatgate.errors import BadInput, Inconclusive

READERS: tuple[Reader, ...] = (
    CycloneDxJson(),
    CycloneDxXml(),
    SpdxJson(),
    SpdxXml(),
    SpdxTagValue(),
    SpdxYaml(),
)
"""Every standard and notation."""


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
        path_or_name: for messages; nothing but ``data`` is read.
        data: a CycloneDX document (JSON, XML) or an SPDX 2.x one (JSON, YAML, XML, tag-value).
        known: which packages of the index carry GPU code.
        signals: the fact file ``image_signals``, which names packages of Linux distributions.
        platform: decides the markers that uv writes beside its components; without it a component
            counts whatever its marker says.

    Raises:
        BadInput: neither, malformed, too large, or the ``sbom`` extra is not installed.
        Inconclusive: empty, or it lists nothing.
    """
    name = os.path.basename(os.fspath(path_or_name)) or "sbom"
    text = decode(data, name, LARGEST_FILE)
    reader = next((reader for reader in READERS if reader.recognises(text)), None)
    if reader is None:
        hint = "CycloneDX (JSON, XML) and SPDX 2.x (JSON, YAML, XML, tag-value) are read"
        raise BadInput("is not a bill of materials that is read", field=name, hint=hint)
    bill = reader.read(text, name)
    if not bill.listed:
        hint = "point the generator at the image or environment"
        raise Inconclusive("lists no components", field=name, hint=hint)
    parts = _for_platform(bill.parts, platform, name)
    found = observe(parts, name, read_signals(signals), known)
    rest = {key: value for key, value in bill.rest.items() if key != "open"}
    measured = _measured(parts, rest.get("measured", {}), found.observations, name)
    found = replace(found, observations=(*found.observations, *measured))
    left = [*bill.rest.get("open", ()), *found.open]
    if not found.observations and not left and not rest:
        left.append(f"{name} holds no component of a GPU stack")
    left += without_cuda(found.observations, found.of_index, name)
    left += several_versions(found.observations, name)
    conflicts = (*found.conflicts, *two_cudas(found.observations))
    return SbomReading(
        bill.format, found.observations, conflicts, tuple(left[:50]), rest, found.origins
    )


def _measured(
    parts: Iterable[Part], measured: Mapping[str, Any], seen: Iterable[Observation], file: str
) -> list[Observation]:
    """Parts whose own files were read: they are packages, whatever their names say."""
    known = {one.component for one in seen}
    found: dict[str, Observation] = {}
    for part in parts:
        name = canonicalize_name(part.name)
        if name in measured and name not in known and part.version:
            origin = f"{file}: {part.ref}"
            found.setdefault(name, Observation(name, part.version, origin, "metadata"))
    return list(found.values())


def _for_platform(
    parts: tuple[Part, ...], platform: Platform | None, file: str
) -> tuple[Part, ...]:
    if platform is None or not any(part.marker for part in parts):
        return parts
    markers = Markers(platform, file=file)
    return tuple(part for part in parts if markers.decide(part.marker) is not False)
