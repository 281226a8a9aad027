"""Read a lockfile into observations of a stack."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from packaging.utils import canonicalize_name

from compatgate.core.components import is_framework
from compatgate.core.facts.packages import Packages
from compatgate.discovery.lockfiles import stack_components
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
_VARIANT_CUDA = re.compile(r"nvidia :: cuda_version_lower_bound :: (.*)")
_VARIANT_ARCH = re.compile(r"nvidia :: sm_arch :: (\d{2,3}[af]?)_(real|virtual)")


def read_lockfile(
    path_or_name: str | os.PathLike[str], data: bytes, *, platform: Platform, known: Packages
) -> LockReading:
    """Read a lockfile of any known format for one platform.

    A `Path` may include files of its folder; the name of a client's file leaves them open.
    """
    name = os.path.basename(os.fspath(path_or_name)) or "lockfile"
    text = decode_text(data, name)
    beside = partial(_read_beside, path_or_name) if isinstance(path_or_name, Path) else None
    file = LockFile(name, text, beside)
    if not any(one.recognises(file) for one in QUOTING_FORMATS):
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


def _read_beside(path: Path, relative: str) -> bytes:
    """Read a file in the lockfile's folder; refuse links out of it."""
    folder = path.resolve().parent
    wanted = (folder / relative).resolve()
    if not wanted.is_relative_to(folder):
        raise OSError(0, "it is outside of the lockfile's folder")
    return wanted.read_bytes()


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
    of_index = python.of_index - {one.component for one in (*conda_found.observations, *built)}
    left += find_unknown_cuda(observations, of_index, file)
    left += find_open_versions(observations, file)
    names = [p.name for p in chosen if p.version is None and _name_in_stack(p, known)]
    if form is REQUIREMENTS and not observations and names:
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
    is_gpu = is_gpu_package(package, known)
    return canonicalize_name(package.name) if is_gpu else _component_name(package)


def _component_name(package: ListedPackage) -> str:
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
        component = _component_name(package)
        if not component or package.version is None:
            continue
        if len(package.labels) > 1:
            listed = [(label, package.variants.get(label)) for label in package.labels[:8]]
            shown = "; ".join(f"{one} ({', '.join(has)})" if has else one for one, has in listed)
            left.append(f"{component} {package.version}: the installer chooses among {shown}")
            continue
        label = package.labels[0]
        properties = package.variants.get(label, ())
        if not properties and label != "null":
            left.append(f"{component}: variant {label} has no properties in {package.origin}")
        cuda = next((bound[1] for bound in map(_VARIANT_CUDA.match, properties) if bound), "")
        version = f"{package.version}+cu{cuda.replace('.', '')}" if cuda else package.version
        observations.append(Observation(component, version, package.origin, "derived"))
        for code in filter(None, map(_VARIANT_ARCH.fullmatch, properties)):
            arch += (f"{'sm' if code[2] == 'real' else 'compute'}_{code[1]}",)
    return observations, arch, left
