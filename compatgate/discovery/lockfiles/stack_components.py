"""Turn locked packages of PyPI and of conda into components and GPU packages of a stack."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from msgspec import Struct
from packaging.utils import canonicalize_name

from compatgate.core.components import (
    COMPONENTS,
    Component,
    component_pattern,
    find_component,
    is_framework,
)
from compatgate.core.facts.packages import LockedPackage, Packages, explain_gpu_use
from compatgate.core.stack_facts import CONDA as CONDA_LABEL
from compatgate.core.stack_values import Wheel
from compatgate.core.vocabulary import CONDA, CUDA_BY_PLUGIN, META, NOT_ON_INDEX
from compatgate.discovery.lockfiles import wheel_builds
from compatgate.discovery.lockfiles.interface import ListedPackage, PackageOrigin
from compatgate.discovery.observations import Conflict, Observation, observe_version

_WITHOUT_LABEL = ("cuda", "cublas")
"""Packages with the toolkit's version number: 12.4.127 states CUDA 12 without a label."""
_PARTS = re.compile(r"tensorrt(?:-(?:cu\d{2}|lean|dispatch))*-(?:libs|bindings)")
_JAX_PARTS = re.compile(r"jax-cuda(\d{2})-(?:plugin|pjrt)")


class LockedComponents(Struct, frozen=True):
    """The components among locked packages."""

    observations: tuple[Observation, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    open: tuple[str, ...] = ()
    of_index: frozenset[str] = frozenset()


_INDEX_HOSTS = ("pypi.org", "files.pythonhosted.org", "pypi.python.org")
"""Hosts of the package index and its files; a mirror may serve other wheels."""


def is_from_index(package: ListedPackage, indexes: Sequence[str]) -> bool:
    """Return whether a package is from the package index, by the URLs in the file."""
    named = [url for url in package.sources if "/" in url or "\\" in url] or indexes
    return all(map(_is_at_index, named))


def _is_at_index(url: str) -> bool:
    try:
        return urlsplit(url).hostname in _INDEX_HOSTS
    except ValueError:
        return False


def find_pypi_component(name: str) -> tuple[Component, tuple[int, ...] | None] | None:
    """Return the component of a package on the index, and the CUDA that its name states."""
    canonical = canonicalize_name(name)
    excluded = canonical in NOT_ON_INDEX or len(canonical) > 100
    if excluded or not component_pattern().search(canonical):
        return None
    resolved = find_component(canonical)
    if resolved is None or resolved.component.kind in ("driver", "runtime", "build"):
        return None
    return resolved.component, resolved.cuda


def belongs_to_component(name: str) -> bool:
    """Return whether a package is a component, or a part or stub of one."""
    return bool(
        find_pypi_component(name)
        or name in NOT_ON_INDEX
        or _PARTS.fullmatch(name)
        or find_component(name)
    )


def observe_pypi(packages: Sequence[ListedPackage], indexes: Sequence[str]) -> LockedComponents:
    """Return components among locked packages."""
    observations: list[Observation] = []
    conflicts: list[Conflict] = []
    left: list[str] = []
    companion = _jax_label(packages)
    index: set[str] = set()
    elsewhere: set[str] = set()
    for package in packages:
        resolved = find_pypi_component(package.name)
        if not resolved:
            continue
        component, cuda = resolved
        decided = is_from_index(package, indexes) and component.name not in CUDA_BY_PLUGIN
        (index if decided else elsewhere).add(component.name)
        if package.version is None:
            left.append(describe_unpinned(component.name, package))
            continue
        label, disagreement = _pypi_label(component, package, indexes)
        if cuda and component.name not in _WITHOUT_LABEL:
            label = label or f"cu{''.join(map(str, cuda))}"
        if component.name == "jax":
            label = label or companion
        version = package.version + (f"+{label}" if label and "+" not in package.version else "")
        if seen := observe_version(component.name, version, package.origin, left):
            observations += seen
            conflicts += disagreement
    brought = {
        (observation.component, observation.version.partition("+")[0])
        for observation in observations
        if observation.component in META and "+" in observation.version
    }
    seen = [o for o in observations if (o.component, o.version) not in brought]
    if not companion and any(canonicalize_name(package.name) == "jaxlib" for package in packages):
        others = any(is_framework(o.component) and o.component != "jax" for o in seen)
        seen = [o for o in seen if o.component != "jax"] if others else seen
    of_index = frozenset(index - elsewhere)
    return LockedComponents(tuple(seen), tuple(conflicts), tuple(left), of_index)


def _pypi_label(
    component: Component, package: ListedPackage, indexes: Sequence[str]
) -> tuple[str, list[Conflict]]:
    """Return the CUDA build in the version, else in the package's own URLs, else in the index.

    An index for all packages decides for PyTorch alone: its other packages have one build.
    """
    own = wheel_builds.parse_version_label(package.version or "")
    if component.kind != "framework":
        return own, []
    named = wheel_builds.collect_labels(package.sources)
    if own:
        others = [label for label in named if label != own]
        return own, [_build_conflict(component, package, own, others[0])] if others else []
    if len(named) > 1:
        return "", [_build_conflict(component, package, named[0], named[1])]
    if named:
        return named[0], []
    if component.name != "torch":
        return "", []
    general = tuple(dict.fromkeys(filter(None, map(wheel_builds.parse_url_label, indexes))))
    if len(general) > 1:
        return "", [_build_conflict(component, package, general[0], general[1])]
    return (general[0] if general else ""), []


def _build_conflict(component: Component, package: ListedPackage, one: str, other: str) -> Conflict:
    message = f"{package.origin} names two builds of {component.name}: {one} and {other}"
    return Conflict(component.name, message, None)


def describe_unpinned(name: str, package: ListedPackage) -> str:
    """Return the sentence that says why a package has no version."""
    asked = package.specifier.strip()
    why = f"{asked!r} allows several versions" if asked else "no version is stated"
    return f"{name}: {why} ({package.origin})"


def _jax_label(packages: Sequence[ListedPackage]) -> str:
    """Return JAX's CUDA label: that of its plugin, in older releases that of jaxlib."""
    for package in packages:
        name = canonicalize_name(package.name)
        if match := _JAX_PARTS.fullmatch(name):
            return f"cuda{match[1]}"
        if name == "jaxlib" and (label := wheel_builds.parse_version_label(package.version or "")):
            return label
    return ""


_TOOLKIT = re.compile(
    r"cuda(?:-.+)?|lib(?:cu|npp|nv)[a-z]+(?:-(?:dev|static))?|nvidia-.+|pytorch-mutex"
)
"""Names of the toolkit's own packages on conda's channels."""
_CONDA_CUDNN = re.compile(r"cudnn(\d{1,2}\.\d{1,2}(?:\.\d{1,3}){0,2})")
_NUMBERS_OF_VERSION = {"cuda": 2, "python": 2}
"""Numbers that settle a version; three for all others."""
_URL = re.compile(r"(?P<name>[^/]+)-(?P<version>[^-/]+)-(?P<build>[^-/]+)\.(?:tar\.bz2|conda)")
_SPEC = re.compile(
    r"(?:(?P<channel>[\w.\-/:]+)::)?(?P<name>[A-Za-z0-9_.\-]+)\s*"
    r"(?P<version>(?:[=<>!~]|\s+\d|\s+\*).*)?"
)
_SUBDIR = re.compile(r"noarch|(?:linux|win|osx)-\w+")
_LONGEST_SPEC = 1000
_BRACKET = re.compile(r"\[(?P<body>[^\]]*)\]$")
_KEY = re.compile(r"""(version|build|build_number|channel|subdir)\s*=\s*["']?([^"',\]]*)["']?""")
_EXACT_VERSION = re.compile(
    r"(?:={1,2})?\s*(?P<version>[A-Za-z0-9_.+!]+)(?:(?:\s*=\s*|\s+)(?P<build>\S+))?"
)


def find_conda_component(package: ListedPackage) -> Component | None:
    """Return the component of a conda package; ONNX Runtime counts only in CUDA builds."""
    name = package.name.lower()
    if name == "onnxruntime" and not wheel_builds.uses_cuda(package.build):
        return None
    component = COMPONENTS.get(CONDA.get(name, name))
    return None if component is None or component.kind in ("driver", "build") else component


def is_toolkit(name: str) -> bool:
    """Return whether a package is a part of the CUDA toolkit, which ``cuda`` represents."""
    return bool(_TOOLKIT.fullmatch(name))


def observe_conda(packages: Sequence[ListedPackage]) -> LockedComponents:
    """Return components among decided conda packages."""
    observations: list[Observation] = []
    left: list[str] = []
    builds = {package.name.lower(): package.build for package in packages}
    for package in packages:
        component = find_conda_component(package)
        if component is None:
            continue
        version = package.version or ""
        # conda's =12.1 is exact where it has all significant numbers
        whole = version.count(".") + 1 >= _NUMBERS_OF_VERSION.get(component.name, 3)
        if not version or (package.specifier and not whole):
            asked = package.specifier or package.version or "any version"
            left.append(f"{component.name}: {asked!r} allows several versions ({package.origin})")
            continue
        version = _add_conda_label(component, package, builds)
        seen = observe_version(component.name, version, package.origin, left)
        observations += seen
        cudnn = _CONDA_CUDNN.search(package.build.lower())
        if seen and component.name == "torch" and cudnn:
            observations.append(Observation("cudnn", cudnn[1], package.origin, "derived"))
    return LockedComponents(tuple(observations), (), tuple(left))


def _add_conda_label(component: Component, package: ListedPackage, builds: dict[str, str]) -> str:
    version = package.version or ""
    if component.name in ("cuda", "cublas", "python") or "+" in version:
        return version
    build = package.build
    if component.name == "jax":
        build = builds.get("jaxlib", build)
    if component.name == "tensorflow" and not wheel_builds.parse_conda_label(build):
        build = builds.get("tensorflow-base", build)
    label = wheel_builds.parse_conda_label(build)
    if component.kind == "framework":
        label = wheel_builds.parse_conda_framework_label(build, package.channel)
    if package.name.lower() == "pytorch-cpu":
        label = "cpu"
    return f"{version}+{label}" if label else version


def parse_conda_url(url: str, origin: str) -> ListedPackage | None:
    """Return the package of a conda file's URL; None for other URLs."""
    path = url.split("#")[0].split("?")[0]
    match = _URL.fullmatch(path.rsplit("/", 1)[-1])
    if not match:
        return None
    return ListedPackage(
        match["name"],
        f"{origin}: {match['name']}",
        version=match["version"],
        sources=(path,),
        build=match["build"],
        channel=parse_channel(path.rpartition("/")[0]),
        ecosystem="conda",
    )


def conda_subdir(url: str) -> str:
    """Return ``linux-64`` of a conda package's URL."""
    parts = url.split("#")[0].rsplit("/", 2)
    return parts[1] if len(parts) == 3 else ""


def parse_channel(stated: str) -> str:
    """Return a channel's name: ``conda-forge`` of ``https://.../conda-forge/linux-64``.

    A label (``conda-forge/label/pytorch_rc``) stays in the name: its builds are others.
    """
    parts = [part for part in stated.rstrip("/").split("/") if part]
    if parts and _SUBDIR.fullmatch(parts[-1]):
        parts.pop()
    return "" if not parts or "label" in parts else parts[-1]


def parse_conda_spec(spec: str, origin: str) -> ListedPackage | None:
    """Return the package of a match specification; None for other text.

    ``pytorch=2.4.1=py3.11_cuda12.1_cudnn9.1.0_0``, ``nvidia::cuda-version ==12.4``,
    ``python>=3.10``, ``pytorch[version='2.4.1', build='*cuda*']``. conda: ``=`` is a prefix
    (``=2.4`` means 2.4.*), ``==`` exact.
    """
    text = spec.strip()
    if len(text) > _LONGEST_SPEC:
        return None
    keys: dict[str, str] = {}
    if match := _BRACKET.search(text):
        keys = dict(_KEY.findall(match["body"]))
        text = text[: match.start()].strip()
    match = _SPEC.fullmatch(text)
    if not match:
        return None
    asked = (match["version"] or keys.get("version", "")).strip()
    exact = _EXACT_VERSION.fullmatch(asked)
    if not exact or "*" in exact["version"]:
        return ListedPackage(match["name"], origin, specifier=asked or "*", ecosystem="conda")
    fuzzy = not asked.startswith("==") and not exact["build"]
    return ListedPackage(
        match["name"],
        origin,
        version=exact["version"],
        specifier=asked if fuzzy else "",
        build=exact["build"] or keys.get("build", ""),
        channel=parse_channel(match["channel"] or keys.get("channel", "")),
        ecosystem="conda",
    )


class GpuPackages(Struct, frozen=True):
    """The GPU packages of a lock, bill of materials or environment.

    Wheels and origins are by name of the package or component; ``open`` are those without version.
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
    if observations or wheels or any(find_pypi_component(package.name) for package in packages):
        for package in options:
            _observe(package, observations, left)
            origins.setdefault(canonicalize_name(package.name), _build_origin(package, asked))
    return GpuPackages(tuple(observations), wheels, tuple(left), origins)


def is_gpu_package(package: ListedPackage, known: Packages) -> bool:
    """Return whether a package, neither a component nor a part of one, belongs in the stack."""
    name = canonicalize_name(package.name)
    if belongs_to_component(name):
        return False
    if package.ecosystem == "conda":
        if find_conda_component(package) or is_toolkit(name):
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
        left.append(describe_unpinned(name, package))
        return
    version = package.version
    if "+" not in version:
        if package.ecosystem == "conda":
            version += f"+{CONDA_LABEL}"
        elif label := _build_label(package):
            version += f"+{label}"
    observations += observe_version(name, version, package.origin, left)


def _build_origin(package: ListedPackage, asked: Sequence[str]) -> PackageOrigin:
    return PackageOrigin(
        canonicalize_name(package.name),
        package.version or "",
        package.ecosystem,
        package.wheels,
        (package.index,) if package.index else tuple(asked),
        package.digests,
    )
