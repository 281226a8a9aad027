"""From locked Python packages to components of a stack."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from msgspec import Struct
from packaging.utils import canonicalize_name

from compatgate.core.components import Component, find_component, is_framework, mention
from compatgate.core.versions import parse_version
from compatgate.core.vocabulary import CUDA_BY_PLUGIN, META, NOT_ON_INDEX
from compatgate.discovery.lockfiles import build_label
from compatgate.discovery.lockfiles.interface import Package
from compatgate.discovery.observed import Conflict, Observation
from compatgate.errors import BadInput

_UNLABELLED = ("cuda", "cublas")
"""Their versions are the toolkit's own: 12.4.127 needs no label to say CUDA 12."""
_PARTS = re.compile(r"tensorrt(?:-(?:cu\d{2}|lean|dispatch))*-(?:libs|bindings)")
_JAX_PARTS = re.compile(r"jax-cuda(\d{2})-(?:plugin|pjrt)")


class Found(Struct, frozen=True):
    """What packages come to.

    Attributes:
        of_index: components whose packages are all from the package index.
    """

    observations: tuple[Observation, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    open: tuple[str, ...] = ()
    of_index: frozenset[str] = frozenset()


_INDEX_HOSTS = ("pypi.org", "files.pythonhosted.org", "pypi.python.org")
"""Where the package index and its files are; a mirror may serve other wheels."""


def is_of_index(package: Package, indexes: Sequence[str]) -> bool:
    """Tell whether a package is from the package index, as far as the file says where it is from.

    Args:
        package: of the Python ecosystem.
        indexes: index URLs that hold for all packages of the file.
    """
    named = [url for url in package.sources if "/" in url or "\\" in url] or indexes
    return all(map(_is_at_index, named))


def _is_at_index(url: str) -> bool:
    try:
        return urlsplit(url).hostname in _INDEX_HOSTS
    except ValueError:
        return False


def component_of(name: str) -> tuple[Component, tuple[int, ...] | None] | None:
    """The component that a package on the index is, and the CUDA that its name states."""
    canonical = canonicalize_name(name)
    if canonical in NOT_ON_INDEX or len(canonical) > 100 or not mention().search(canonical):
        return None
    resolved = find_component(canonical)
    if resolved is None or resolved.component.kind in ("driver", "runtime"):
        return None
    return resolved.component, resolved.cuda


def belongs_to_component(name: str) -> bool:
    """Tell whether a package is a component, or a part or stub of one.

    Args:
        name: normalised.
    """
    return bool(
        component_of(name) or name in NOT_ON_INDEX or _PARTS.fullmatch(name) or find_component(name)
    )


def observe(packages: Sequence[Package], indexes: Sequence[str]) -> Found:
    """Components among locked packages.

    Args:
        packages: of the Python ecosystem, decided ones only.
        indexes: index URLs that hold for all of them.
    """
    observations: list[Observation] = []
    conflicts: list[Conflict] = []
    left: list[str] = []
    companion = _jax_label(packages)
    index: set[str] = set()
    elsewhere: set[str] = set()
    for package in packages:
        found = component_of(package.name)
        if not found:
            continue
        component, cuda = found
        decided = is_of_index(package, indexes) and component.name not in CUDA_BY_PLUGIN
        (index if decided else elsewhere).add(component.name)
        if package.version is None:
            left.append(unpinned(component.name, package))
            continue
        label, disagreement = _label(component, package, indexes)
        if cuda and component.name not in _UNLABELLED:
            label = label or f"cu{''.join(map(str, cuda))}"
        if component.name == "jax":
            label = label or companion
        observation = _observation(component, package, package.version, label)
        try:
            parse_version(component.name, observation.version)
        except BadInput as error:
            left.append(f"{package.origin}: {error.problem}")
            continue
        observations.append(observation)
        conflicts += disagreement
    seen = list(_without_meta(observations))
    if not companion and any(canonicalize_name(package.name) == "jaxlib" for package in packages):
        seen = _without_cpu_jax(seen)
    of_index = frozenset(index - elsewhere)
    return Found(tuple(seen), tuple(conflicts), tuple(left), of_index)


def _without_cpu_jax(observations: list[Observation]) -> list[Observation]:
    """Leave out JAX beside another framework: without a CUDA plugin it is a package for CPUs."""
    others = any(is_framework(o.component) and o.component != "jax" for o in observations)
    return [o for o in observations if o.component != "jax"] if others else observations


def _without_meta(observations: Sequence[Observation]) -> list[Observation]:
    """Observations without those of a meta package whose own package is locked beside it."""
    brought = {
        (seen.component, seen.version.partition("+")[0])
        for seen in observations
        if seen.component in META and "+" in seen.version
    }
    return [o for o in observations if (o.component, o.version) not in brought]


def _observation(component: Component, package: Package, version: str, label: str) -> Observation:
    if not label or "+" in version:
        return Observation(component.name, version, package.origin, "metadata")
    return Observation(component.name, f"{version}+{label}", package.origin, "metadata")


def _label(
    component: Component, package: Package, indexes: Sequence[str]
) -> tuple[str, list[Conflict]]:
    """The CUDA build: of the version, else of the package's own URLs, else of the index.

    An index for all packages speaks of PyTorch alone: what else is on it is the same everywhere.
    """
    own = build_label.of_version(package.version or "")
    if component.kind != "framework":
        return own, []
    named = build_label.of_sources(package.sources)
    if own:
        others = [label for label in named if label != own]
        return own, [_two_builds(component, package, own, others[0])] if others else []
    if len(named) > 1:
        return "", [_two_builds(component, package, named[0], named[1])]
    if named:
        return named[0], []
    if component.name != "torch":
        return "", []
    general = tuple(dict.fromkeys(filter(None, map(build_label.of_url, indexes))))
    if len(general) > 1:
        return "", [_two_builds(component, package, general[0], general[1])]
    return (general[0] if general else ""), []


def _two_builds(component: Component, package: Package, one: str, other: str) -> Conflict:
    message = f"{package.origin} names two builds of {component.name}: {one} and {other}"
    return Conflict(component.name, message, None)


def unpinned(name: str, package: Package) -> str:
    """Return the sentence that says why a package has no version."""
    asked = package.specifier.strip()
    if asked:
        return f"{name}: {asked!r} allows several versions ({package.origin})"
    return f"{name}: no version is stated ({package.origin})"


def _jax_label(packages: Sequence[Package]) -> str:
    """JAX's CUDA is its plugin's, and was its jaxlib's label."""
    for package in packages:
        name = canonicalize_name(package.name)
        if match := _JAX_PARTS.fullmatch(name):
            return f"cuda{match[1]}"
        if name == "jaxlib" and (label := build_label.of_version(package.version or "")):
            return label
    return ""
