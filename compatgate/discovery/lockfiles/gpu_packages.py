"""Find the GPU packages of a stack among locked packages, whatever their names."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from packaging.utils import canonicalize_name

from compatgate.core.components import find_component
from compatgate.core.facts.packages import LockedPackage, Packages, explain_gpu_use
from compatgate.core.stack_facts import CONDA
from compatgate.core.stack_values import Wheel
from compatgate.core.versions import parse_version
from compatgate.discovery.lockfiles import stack_components, wheel_builds
from compatgate.discovery.lockfiles.interface import ListedPackage, PackageOrigin
from compatgate.discovery.observations import Observation
from compatgate.errors import BadInput


class GpuPackages(Struct, frozen=True):
    """The GPU packages of a lock, bill of materials or environment.

    Attributes:
        wheels: the installed file of each package and component, where known.
        open: sentences about packages without a version.
        origins: sources of the files of each package and component, by name.
    """

    observations: tuple[Observation, ...] = ()
    wheels: dict[str, Wheel] = {}
    open: tuple[str, ...] = ()
    origins: dict[str, PackageOrigin] = {}


def find_gpu_packages(
    packages: Sequence[ListedPackage], known: Packages, asked: Sequence[str] = ("",)
) -> GpuPackages:
    """Find the packages, other than components, that carry GPU code or depend on CUDA.

    Packages that compile GPU code only for some features count only together with others. ``asked``
    are indexes for packages without one; ``""`` is the default index.
    """
    observations: list[Observation] = []
    wheels: dict[str, Wheel] = {}
    left: list[str] = []
    options: list[ListedPackage] = []
    origins: dict[str, PackageOrigin] = {}
    for package in packages:
        name: str = canonicalize_name(package.name)
        if known.carries(name) == "options" and package.version:
            options.append(package)
            continue
        if is_gpu_package(package, known):
            _observe(package, observations, left)
        else:
            resolved = find_component(name) if package.ecosystem == "pypi" else None
            if resolved is None:
                continue
            name = resolved.component.name
        if len(package.wheels) == 1:  # among several the installer chooses by its Python
            url, digest = package.wheels[0].url, package.wheels[0].sha256
            file = url.split("#")[0].split("?")[0].replace("\\", "/").rsplit("/", 1)[-1]
            other = wheels.get(name)
            # A metapackage (``-any.whl``) has no library: another file describes the part better.
            if other is None or (other.file or "").endswith("-any.whl"):
                wheels[name] = Wheel(file=file, sha256=digest)
        if package.version:
            origins.setdefault(name, _build_origin(package, asked))
    if (
        observations
        or wheels
        or any(stack_components.find_pypi_component(package.name) for package in packages)
    ):
        for package in options:
            _observe(package, observations, left)
            origins.setdefault(canonicalize_name(package.name), _build_origin(package, asked))
    return GpuPackages(tuple(observations), wheels, tuple(left), origins)


def is_gpu_package(package: ListedPackage, known: Packages) -> bool:
    """Return whether a package, neither a component nor a part of one, belongs in the stack."""
    name = canonicalize_name(package.name)
    if stack_components.belongs_to_component(name):
        return False
    if package.ecosystem == "conda":
        if stack_components.find_conda_component(package) or stack_components.is_toolkit(name):
            return False  # CUDA's own libraries belong to ``cuda``
        if known.carries(name) == "nothing":
            return False  # its build for CUDA has no GPU code either
        return wheel_builds.uses_cuda(package.build) or known.carries(name) in ("code", "runtime")
    compiled = None
    if package.wheels:
        compiled = any(not wheel.url.endswith("-any.whl") for wheel in package.wheels)
    build = wheel_builds.parse_version_label(package.version or "") or _build_label(package)
    depends = tuple(map(canonicalize_name, package.depends))
    return explain_gpu_use(LockedPackage(name, build, depends, compiled), known) is not None


def _build_label(package: ListedPackage) -> str:
    """Return the build label in a package's files or index, if any."""
    named = wheel_builds.collect_labels(package.sources)
    return named[0] if len(named) == 1 else ""


def _observe(package: ListedPackage, observations: list[Observation], left: list[str]) -> None:
    name = canonicalize_name(package.name)
    if package.version is None:
        left.append(stack_components.describe_unpinned(name, package))
        return
    version = package.version
    if "+" not in version:
        if package.ecosystem == "conda":
            version += f"+{CONDA}"
        elif label := _build_label(package):
            version += f"+{label}"
    try:
        parse_version(name, version)
    except BadInput as error:
        left.append(f"{package.origin}: {error.problem}")
        return
    observations.append(Observation(name, version, package.origin, "metadata"))


def _build_origin(package: ListedPackage, asked: Sequence[str]) -> PackageOrigin:
    return PackageOrigin(
        canonicalize_name(package.name),
        package.version or "",
        package.ecosystem,
        package.wheels,
        (package.index,) if package.index else tuple(asked),
        package.digests,
    )
