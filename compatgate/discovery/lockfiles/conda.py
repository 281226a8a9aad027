"""From conda packages to components of a stack."""

from __future__ import annotations

import re
from collections.abc import Sequence

from compatgate.core.components import COMPONENTS, Component
from compatgate.core.versions import parse_version
from compatgate.core.vocabulary import CONDA
from compatgate.discovery.lockfiles import build_label
from compatgate.discovery.lockfiles.interface import Package
from compatgate.discovery.lockfiles.pypi import Found
from compatgate.discovery.observed import Observation
from compatgate.errors import BadInput

_TOOLKIT = re.compile(
    r"cuda(?:-.+)?|lib(?:cu|npp|nv)[a-z]+(?:-(?:dev|static))?|nvidia-.+|pytorch-mutex"
)
"""Names of the toolkit's own packages on conda's channels."""
_PLACES = {"cuda": 2, "python": 2}
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
_EXACT = re.compile(
    r"(?:={1,2})?\s*(?P<version>[A-Za-z0-9_.+!]+)(?:(?:\s*=\s*|\s+)(?P<build>\S+))?"
)


def component_of(package: Package) -> Component | None:
    """The component that a conda package is; ONNX Runtime counts in its CUDA builds only."""
    name = package.name.lower()
    if name == "onnxruntime" and not build_label.uses_cuda(package.build):
        return None
    component = COMPONENTS.get(CONDA.get(name, name))
    return None if component is None or component.kind == "driver" else component


def is_toolkit(name: str) -> bool:
    """Tell whether a package is a part of the CUDA toolkit, which ``cuda`` stands for."""
    return bool(_TOOLKIT.fullmatch(name))


def observe(packages: Sequence[Package]) -> Found:
    """Components among locked conda packages; decided ones only."""
    observations: list[Observation] = []
    left: list[str] = []
    builds = {package.name.lower(): package.build for package in packages}
    for package in packages:
        component = component_of(package)
        if component is None:
            continue
        if not _settled(component, package):
            asked = package.specifier or package.version or "any version"
            left.append(f"{component.name}: {asked!r} allows several versions ({package.origin})")
            continue
        version = _with_label(component, package, builds)
        try:
            parse_version(component.name, version)
        except BadInput as error:
            left.append(f"{package.origin}: {error.problem}")
            continue
        observations.append(Observation(component.name, version, package.origin, "metadata"))
        if component.name == "torch" and (cudnn := build_label.cudnn_of_conda_build(package.build)):
            observations.append(Observation("cudnn", cudnn, package.origin, "derived"))
    return Found(tuple(observations), (), tuple(left))


def _settled(component: Component, package: Package) -> bool:
    """Exact, or conda's fuzzy ``=12.1`` with as many numbers as the component's versions need."""
    if not package.version:
        return False
    if not package.specifier:
        return True
    return package.version.count(".") + 1 >= _PLACES.get(component.name, 3)


def _with_label(component: Component, package: Package, builds: dict[str, str]) -> str:
    version = package.version or ""
    if component.name in ("cuda", "cublas", "python") or "+" in version:
        return version
    build = package.build
    if component.name == "jax":
        build = builds.get("jaxlib", build)
    if component.name == "tensorflow" and not build_label.of_conda_build(build):
        build = builds.get("tensorflow-base", build)
    label = build_label.of_conda_build(build)
    if component.kind == "framework":
        label = build_label.of_conda_framework(build, package.channel)
    if package.name.lower() == "pytorch-cpu":
        label = "cpu"
    return f"{version}+{label}" if label else version


def from_url(url: str, origin: str) -> Package | None:
    """A package from its file's URL; None when the URL is not one of a conda package."""
    path = url.split("#")[0].split("?")[0]
    match = _URL.fullmatch(path.rsplit("/", 1)[-1])
    if not match:
        return None
    return Package(
        match["name"],
        f"{origin}: {match['name']}",
        version=match["version"],
        sources=(path,),
        build=match["build"],
        channel=channel_of(path.rpartition("/")[0]),
        ecosystem="conda",
    )


def subdir(url: str) -> str:
    """``linux-64`` of a conda package's URL."""
    parts = url.split("#")[0].rsplit("/", 2)
    return parts[1] if len(parts) == 3 else ""


def channel_of(stated: str) -> str:
    """Return a channel's name: ``conda-forge`` of ``https://.../conda-forge/linux-64``.

    What is below a label (``conda-forge/label/pytorch_rc``) is not what the channel publishes.
    """
    parts = [part for part in stated.rstrip("/").split("/") if part]
    if parts and _SUBDIR.fullmatch(parts[-1]):
        parts.pop()
    return "" if not parts or "label" in parts else parts[-1]


def from_spec(spec: str, origin: str) -> Package | None:
    """A package from a match specification; None when it is none.

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
    exact = _EXACT.fullmatch(asked)
    if not exact or "*" in exact["version"]:
        return Package(match["name"], origin, specifier=asked or "*", ecosystem="conda")
    fuzzy = not asked.startswith("==") and not exact["build"]
    return Package(
        match["name"],
        origin,
        version=exact["version"],
        specifier=asked if fuzzy else "",
        build=exact["build"] or keys.get("build", ""),
        channel=channel_of(match["channel"] or keys.get("channel", "")),
        ecosystem="conda",
    )
