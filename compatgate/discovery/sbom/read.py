"""Read a bill of materials: recognise its format, and turn package URLs into components of a stack.

Source: https://github.com/package-url/purl-spec.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from compatgate.core.components import find_component
from compatgate.core.facts.packages import Packages
from compatgate.core.vocabulary import NEEDS_URL
from compatgate.discovery.lockfiles import stack_components
from compatgate.discovery.lockfiles.interface import ListedPackage, PackageOrigin
from compatgate.discovery.lockfiles.platform import Markers, Platform
from compatgate.discovery.lockfiles.stack_components import find_gpu_packages
from compatgate.discovery.lockfiles.text import decode_text
from compatgate.discovery.observations import (
    Observation,
    find_cuda_conflicts,
    find_open_versions,
    find_unknown_cuda,
    observe_version,
)
from compatgate.discovery.sbom.formats import (
    CYCLONEDX,
    LARGEST_FILE,
    SPDX,
    Part,
    Reader,
    SbomReading,
    component_filter,
    parse_purl,
)
from compatgate.discovery.signals import Signals, observe_package, read_signals
from compatgate.errors import BadInput, InconclusiveInput

_OTHER_NOTATIONS = (
    ("SPDX in tag-value", "spdx-json", re.compile(r"^SPDXVersion:\s*SPDX-", re.M)),
    ("SPDX in YAML", "spdx-json", re.compile(r"""^["']?(?:spdxVersion|SPDXID)["']?\s*:""", re.M)),
    ("SPDX in XML", "spdx-json", re.compile(r"<Document\b.*<(?:spdxVersion|SPDXID)>", re.S)),
    (
        "CycloneDX in XML",
        "cyclonedx-json",
        re.compile(r"<(?:\w+:)?bom\b[^>]*http://cyclonedx\.org/schema/bom/", re.S),
    ),
)


def _find_notation(text: str) -> tuple[str, str] | None:
    """Return a notation other than JSON, and the name of the JSON form."""
    if text.lstrip()[:1] == "{":
        return None
    head = text[:100_000]
    return next((row[:2] for row in _OTHER_NOTATIONS if row[2].search(head)), None)


def _refuse_notation(text: str, name: str) -> NoReturn:
    notation, instead = _find_notation(text) or ("", "")
    hint = f"use {instead}: the same document in JSON"
    raise BadInput(f"is {notation}, which is not supported", field=name, hint=hint)


READERS = (
    CYCLONEDX,
    SPDX,
    Reader(lambda text: _find_notation(text) is not None, _refuse_notation),
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

    The platform decides the markers that uv writes for components; without one every component
    counts.
    """
    name = os.path.basename(os.fspath(path_or_name)) or "sbom"
    text = decode_text(data, name, LARGEST_FILE)
    reader = next((reader for reader in READERS if reader.recognises(text)), None)
    if reader is None:
        hint = "give CycloneDX or SPDX 2.x, in JSON"
        raise BadInput("is not a bill of materials in a known format", field=name, hint=hint)
    bill = reader.read(text, name)
    if not bill.listed:
        hint = "point the generator at the image or environment"
        raise InconclusiveInput("lists no components", field=name, hint=hint)
    if platform is None or not any(part.marker for part in bill.parts):
        parts = bill.parts
    else:
        markers = Markers(platform, file=name)
        parts = tuple(part for part in bill.parts if markers.decide(part.marker) is not False)
    found = observe_parts(parts, name, read_signals(signals), known)
    left = list(found.open)
    if not found.observations and not left:
        left.append(f"{name} holds no component of a GPU stack")
    left += find_unknown_cuda(found.observations, found.of_index, name)
    left += find_open_versions(found.observations, name)
    conflicts = (*found.conflicts, *find_cuda_conflicts(found.observations))
    return SbomReading(bill.format, found.observations, conflicts, tuple(left[:50]), found.origins)


_SOURCES = ("download_url", "repository_url", "vcs_url", "index_url")
_SYSTEM = ("deb", "rpm", "apk")
_COMMON_WORDS = frozenset({"ort", "tf", "python3"})


class BillComponents(stack_components.LockedComponents, frozen=True):
    """The components of a bill, and ``origins``: sources of the files of GPU packages, by name."""

    origins: dict[str, PackageOrigin] = {}


def observe_parts(
    parts: Sequence[Part], file: str, signals: Signals, known: Packages
) -> BillComponents:
    """Return components among the parts of a document, with ``sbom.json: REF`` as origin."""
    python: list[ListedPackage] = []
    conda_packages: list[ListedPackage] = []
    observations: list[Observation] = []
    left: list[str] = []
    for part in parts:
        origin = f"{file}: {part.ref}"
        purl = parse_purl(part.purl)
        if purl is None:
            named = _observe_by_name(part.name, part.version, origin, left, "derived")
            observations += named
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
    # What a package URL states counts before what is known by a name alone
    stated = {o.component for o in certain if o.confidence == "metadata"}
    return BillComponents(
        tuple(o for o in certain if o.confidence == "metadata" or o.component not in stated),
        from_python.conflicts,
        (*left, *from_python.open, *from_conda.open, *gpu.open),
        from_python.of_index
        - {seen.component for seen in (*from_conda.observations, *observations)},
        gpu.origins,
    )


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
    return observe_version(component, version, origin, left, confidence)
