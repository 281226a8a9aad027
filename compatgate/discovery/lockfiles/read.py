"""Read a lockfile into observations of a stack."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

from compatgate.core.components import is_framework
from compatgate.core.facts.packages import Packages
from compatgate.discovery.lockfiles import stack_components, wheel_builds
from compatgate.discovery.lockfiles.formats import FORMATS, QUOTING_FORMATS, REQUIREMENTS
from compatgate.discovery.lockfiles.interface import (
    ListedPackage,
    LockContents,
    LockFile,
    LockFormat,
    LockReading,
    describe_unrelated,
)
from compatgate.discovery.lockfiles.platform import Platform
from compatgate.discovery.lockfiles.stack_components import find_gpu_packages, is_gpu_package
from compatgate.discovery.lockfiles.text import decode_text, refuse_template
from compatgate.discovery.observations import (
    Observation,
    find_cuda_conflicts,
    find_open_versions,
    find_unknown_cuda,
)
from compatgate.errors import BadInput, InconclusiveInput

_MAX_OPEN = 50


def read_lockfile(
    path_or_name: str | os.PathLike[str], data: bytes, *, platform: Platform, known: Packages
) -> LockReading:
    """Read a lockfile of any known format for one platform.

    A `Path` may include files of its folder; the name of a client's file leaves them open.
    """
    name = os.path.basename(os.fspath(path_or_name)) or "lockfile"
    text = decode_text(data, name)
    beside = _folder_reader(path_or_name) if isinstance(path_or_name, Path) else None
    file = LockFile(name, text, beside)
    if not any(known.recognises(file) for known in QUOTING_FORMATS):
        refuse_template(text, name)
    form = recognise(file)
    contents = form.read(file, platform)
    if not contents.packages and not contents.open:
        problem = f"has no packages for {platform}"
        raise InconclusiveInput(problem, field=name, hint="lock the project first")
    return _conclude_reading(form, name, contents, known)


def recognise(file: LockFile) -> LockFormat:
    """Return the format of a file, by name and content."""
    for known in FORMATS:
        if known.recognises(file):
            return known
    hint = f"use one of these formats: {', '.join(known.name for known in FORMATS)}"
    raise BadInput("is not a lockfile in a known format", field=file.name, hint=hint)


def _folder_reader(path: Path) -> Callable[[str], bytes]:
    """Return a reader for files in the lockfile's folder that refuses links out of it."""
    folder = path.resolve().parent

    def read(relative: str) -> bytes:
        wanted = (folder / relative).resolve()
        if not wanted.is_relative_to(folder):
            raise OSError(0, "it is outside of the lockfile's folder")
        return wanted.read_bytes()

    return read


def _conclude_reading(
    form: LockFormat, file: str, contents: LockContents, known: Packages
) -> LockReading:
    chosen = [package for package in contents.packages if not package.selection]
    decided = [package for package in chosen if not package.when]
    variants = [package for package in decided if package.labels]
    python = stack_components.observe_pypi(
        [p for p in decided if p.ecosystem == "pypi" and not p.labels], contents.indexes
    )
    conda_found = stack_components.observe_conda([p for p in decided if p.ecosystem == "conda"])
    built, arch, left = _read_variants(variants)
    gpu = find_gpu_packages(decided, known, contents.asked)
    components = (*conda_found.observations, *python.observations, *built)
    observations = (*components, *gpu.observations)
    left = [*contents.open, *left, *conda_found.open, *python.open, *gpu.open]
    left += _find_undecided(chosen, known)
    if not observations and not left:
        left += _describe_optional_parts(contents.packages, file, known)
    unrelated = not observations and left == [describe_unrelated(file)]
    of_index = python.of_index - {
        observation.component for observation in (*conda_found.observations, *built)
    }
    left += [
        *find_unknown_cuda(observations, of_index, file),
        *find_open_versions(observations, file),
    ]
    if form is REQUIREMENTS and not observations:
        names = [p.name for p in chosen if p.version is None and _name_in_stack(p, known)]
        if names:
            source = file if "." in file else "FILE"
            todo = f"compatgate lock --in {source} chooses releases for a target or pool"
            left = [f"{file} pins no release of {', '.join(names[:4])}: {todo}", *left]
    conflicts = (*contents.conflicts, *conda_found.conflicts, *python.conflicts)
    return LockReading(
        form.name,
        observations,
        (*conflicts, *find_cuda_conflicts(observations)),
        tuple(dict.fromkeys(left))[:_MAX_OPEN],
        arch,
        gpu.wheels,
        gpu.origins,
        unrelated,
    )


def _name_in_stack(package: ListedPackage, known: Packages) -> str:
    """Return the name of a component or GPU package, or ``""``."""
    if is_gpu_package(package, known):
        return canonicalize_name(package.name)
    return _is_component(package)


def _is_component(package: ListedPackage) -> str:
    """Return the component's name, or ``""``."""
    if package.ecosystem == "conda":
        found = stack_components.find_conda_component(package)
        return found.name if found else ""
    known = stack_components.find_pypi_component(package.name)
    return known[0].name if known else ""


def _find_undecided(packages: Sequence[ListedPackage], known: Packages) -> list[str]:
    """Return sentences about parts whose conditions the platform does not decide."""
    candidates: dict[str, list[str]] = {}
    for package in packages:
        component = _name_in_stack(package, known) if package.when else ""
        if component:
            text = f"{package.version or 'some version'} if {package.when}"
            candidates.setdefault(component, []).append(text)
    hint = "; name the target's Python" if any("python" in p.when for p in packages) else ""
    return [f"{name}: {' or '.join(texts[:4])}{hint}" for name, texts in candidates.items()]


def _describe_optional_parts(
    packages: Sequence[ListedPackage], file: str, known: Packages
) -> list[str]:
    """Return sentences for a lock whose GPU stack is only in optional parts."""
    parts: dict[str, str] = {}
    for package in packages:
        component = _name_in_stack(package, known) if package.selection else ""
        if component and (package.selection not in parts or is_framework(component)):
            parts[package.selection] = f"{package.selection} has {component} {package.version}"
    if parts:
        return [f"{file} installs no component by default: {'; '.join(parts.values())}"]
    return [describe_unrelated(file)]


def _read_variants(
    packages: Sequence[ListedPackage],
) -> tuple[list[Observation], tuple[str, ...], list[str]]:
    """Read wheel variants: a single fitting one decides; several stay open."""
    observations: list[Observation] = []
    arch: tuple[str, ...] = ()
    left: list[str] = []
    for package in packages:
        component = _is_component(package)
        if not component or package.version is None:
            continue
        if len(package.labels) > 1:
            shown = "; ".join(_describe_variant(package, label) for label in package.labels[:8])
            left.append(f"{component} {package.version}: the installer chooses among {shown}")
            continue
        label = package.labels[0]
        properties = package.variants.get(label, ())
        if not properties and label != "null":
            left.append(f"{component}: variant {label} has no properties in {package.origin}")
        cuda = wheel_builds.find_variant_cuda(properties)
        version = f"{package.version}+cu{cuda.replace('.', '')}" if cuda else package.version
        observations.append(Observation(component, version, package.origin, "derived"))
        arch += wheel_builds.find_variant_arch(properties)
    return observations, arch, left


def _describe_variant(package: ListedPackage, label: str) -> str:
    properties = package.variants.get(label, ())
    return f"{label} ({', '.join(properties)})" if properties else label
