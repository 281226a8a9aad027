"""Find new releases of frameworks on an index, and additions to known releases.

The section ``index`` of a framework's fact file is the recipe for reading the index.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from packaging.version import Version

from compatgate.core.facts.packages import Packages
from compatgate.discovery.lockfiles.platform import Platform
from compatgate.discovery.wheels.archive import WheelIdentity
from compatgate.discovery.wheels.index import IndexFile, choose_wheel
from refresh.index import (
    UNSTATED_BY_INDEX,
    Bounds,
    Listing,
    News,
    first_upload,
    last_upload,
    pythons,
)
from refresh.requirements import (
    RequiredPackage,
    applicable_requirements,
    cuda_of,
    gpu_requirements,
    pins_of,
    range_of,
    spec_of,
)

_X86, _ARM = Platform(), Platform(cpu="aarch64")
Record = dict[str, Any]


class FrameworkReader:
    """A reader of one framework on an index.

    Args:
        document: fact file of the framework.
        recipe: recipe for reading the index.
        listing: listing of the index.
        packages: packages that belong to a GPU stack.
    """

    def __init__(
        self, document: Record, recipe: Recipe, listing: Listing, packages: Packages
    ) -> None:
        self._component = document["component"]
        self._known: dict[str, Record] = {r["version"]: r for r in document["releases"]}
        self._recipe = recipe
        self._listing = listing
        self._packages = packages

    def news(self, bounds: Bounds) -> tuple[list[News], int]:
        """Find news on the index, and count the releases beyond the limit.

        Raises:
            CompatgateError: the index does not answer, or its answer is malformed.
        """
        offered = self._offered(bounds)
        fresh = self._fresh(offered, bounds)
        kept = bounds.within_limit(fresh)
        found = [self._release(title, offered[title]) for title in kept]
        for title in offered:
            if title in self._known and self._is_asked(title, bounds):
                found += self._added(title, offered[title])
        return found, len(fresh) - len(kept)

    def _offered(self, bounds: Bounds) -> dict[str, list[IndexFile]]:
        """Group the wheels of all distributions by release."""
        found: dict[str, list[IndexFile]] = {}
        for name in self._recipe.releases:
            for version, wheels in self._listing.releases(name).items():
                allowed = [wheel for wheel in wheels if bounds.allows(wheel, version)]
                if allowed:
                    found.setdefault(self._recipe.title(version), []).extend(allowed)
        return found

    def _fresh(self, offered: dict[str, list[IndexFile]], bounds: Bounds) -> list[str]:
        known = {Version(title) for title in self._known}
        unknown = [t for t in offered if Version(t) not in known and not _is_post_release(t, known)]
        if self._named(bounds):
            asked = [title for title in unknown if self._is_asked(title, bounds)]
            return sorted(asked, key=Version, reverse=True)
        boundary = last_upload(w for t, ws in offered.items() if t in self._known for w in ws)
        newest = max(known, default=Version("0"))
        new = [
            title
            for title in unknown
            if bounds.is_new(Version(title), first_upload(offered[title]), newest, boundary)
        ]
        return sorted(new, key=Version, reverse=True)

    def _named(self, bounds: Bounds) -> bool:
        return bool(bounds.named.get(self._component))

    def _is_asked(self, title: str, bounds: Bounds) -> bool:
        return not self._named(bounds) or bounds.names(self._component, Version(title))

    # --- a release -------------------------------------------------------------------------

    def _release(self, title: str, wheels: Sequence[IndexFile]) -> News:
        package = self._recipe.releases[0]
        main = self._wheel(package, title) or choose_wheel(wheels, _X86)[:1]
        uploaded = first_upload(wheels)
        if not main:
            what = "new release without a wheel for Linux x86_64"
            return News(package, title, "release", what, "", uploaded=uploaded)
        identity = self._listing.identity(main[0])
        python = self._python(title, identity)
        builds = [b for r in self._recipe.builds if (b := self._build(r, title, python))]
        if not builds:
            what = "new release; its metadata names no CUDA, so no record can be written"
            return News(package, title, "release", what, "", uploaded=uploaded)
        entry = self._entry(title, identity, python, builds)
        facts = f"frameworks/{self._component}"
        return News(
            identity.package,
            title,
            "release",
            "new release",
            facts,
            entry=entry,
            uploaded=uploaded,
        )

    def _entry(
        self, title: str, identity: WheelIdentity, python: Record, builds: list[Record]
    ) -> Record:
        names = _pythons_of(python)
        core = gpu_requirements(
            applicable_requirements(identity.requires, (), names), self._packages
        )
        pins = {
            name: {"spec": spec}
            for one in core
            if (name := one.requirement.name) in self._recipe.pins
            if (spec := spec_of(one.requirement.specifier))
        }
        own = any(not recipe.package and not recipe.through for recipe in self._recipe.builds)
        rest = [] if own else [one for one in core if one.requirement.name not in pins]
        asked = (
            applicable_requirements(identity.requires, self._recipe.extras, names)
            if self._recipe.extras
            else ()
        )
        entry: Record = {
            "version": title,
            "source": _metadata_of(identity),
            "confidence": "metadata",
            "note": f"read only from the package index, which does not state: {UNSTATED_BY_INDEX}",
            "python": python,
        }
        if pins:
            entry["pins"] = pins
        if groups := _groups((*rest, *asked)):
            entry["requirements"] = groups
        if self._recipe.parts:
            entry["documented"] = [{"package": identity.version}]
        return entry | {"builds": builds}

    def _python(self, title: str, identity: WheelIdentity) -> Record:
        """Return the Pythons of a release, from its wheels, else from the range in its metadata."""
        wheels = self._python_wheels(title)
        found: Record = {}
        if exact := pythons(wheels, _X86):
            found["wheels"] = exact
        if exact and (arm := pythons(wheels, _ARM)):
            found["wheels_aarch64"] = arm
        if not exact:
            low, high = range_of(identity.requires_python)
            found |= {name: text for name, text in (("min", low), ("max", high)) if text}
        if identity.requires_python:
            found["requires"] = identity.requires_python
        told = f"{_metadata_of(identity)} (Requires-Python and wheel file names)"
        return {**found, "source": told, "confidence": "metadata"}

    # --- a build ---------------------------------------------------------------------------

    def _build(self, recipe: BuildRecipe, title: str, python: Record) -> Record | None:
        """Return the record of a build; None where the index has no wheel or names no CUDA."""
        wheel = self._wheel(recipe.package or self._recipe.releases[0], title)
        if not wheel:
            return None
        identity = self._listing.identity(wheel[0])
        names = _pythons_of(python)
        found = gpu_requirements(
            applicable_requirements(identity.requires, recipe.extras, names), self._packages
        )
        cuda = cuda_of(self._through(recipe.through, identity, names) if recipe.through else found)
        accepts = _accepts(recipe.accepts, cuda)
        if accepts is None:
            return None
        numbers = {"cuda": "{}{}".format(*cuda), "major": cuda[0]} if cuda else {}
        name = recipe.name.format(**numbers)
        build: Record = {"name": name}
        if recipe.label:
            build["label"] = name
        if recipe.packages:
            build["packages"] = list(recipe.packages)
        if recipe.built_with and cuda:
            build["cuda"] = "{}.{}".format(*cuda)
        build["accepts"] = accepts
        if recipe.default:
            build["default"] = True
        if pins := {name: {"spec": spec} for name, spec in pins_of(found).items()}:
            build["pins"] = pins
        if not recipe.through and (groups := _groups(found)):
            build["requirements"] = groups
        if recipe.package is None:
            build["wheel"] = wheel[0].name
        return build | {"source": _metadata_of(identity), "confidence": "metadata"}

    def _through(
        self, name: str, identity: WheelIdentity, names: Sequence[str]
    ) -> Sequence[RequiredPackage]:
        """Return the requirements of a framework that a release pins exactly."""
        for one in applicable_requirements(identity.requires, (), names):
            pins = [p for p in one.requirement.specifier if p.operator == "=="]
            if one.requirement.name == name and pins:
                wheels = self._listing.releases(name).get(Version(pins[0].version), ())
                chosen = choose_wheel(wheels, _X86)
                base = self._listing.identity(chosen[0]) if chosen else None
                return applicable_requirements(base.requires, (), names) if base else ()
        return ()

    # --- additions -------------------------------------------------------------------------

    def _added(self, title: str, wheels: Sequence[IndexFile]) -> Iterator[News]:
        """Find new Pythons and builds of a known release."""
        known = self._known[title]
        facts, package = f"frameworks/{self._component}", self._recipe.releases[0]
        named = (self._recipe.python,) if self._recipe.python else self._recipe.releases
        told = " and ".join(f"{name}=={title}" for name in named if self._wheels(name, title))
        source = f"wheel file names of {told} on the package index"
        update = _python_update(known, self._python_wheels(title))
        if update:
            added, python = update
            part = {**python, "source": source, "confidence": "metadata"}
            entry: Record = {"version": title, "python": part}
            what = f"wheels for Python {', '.join(added)}"
            yield News(package, title, "python", what, facts, entry=entry)
        names = {build["name"] for build in known["builds"]}
        for recipe in self._recipe.builds:
            if recipe.package and recipe.name not in names:
                build = self._build(recipe, title, known.get("python") or {})
                if build:
                    entry = {"version": title, "builds": [build]}
                    what = f"build for CUDA {build['accepts']}"
                    yield News(recipe.package, title, "build", what, facts, entry=entry)

    def _python_wheels(self, title: str) -> list[IndexFile]:
        """List the wheels that state the Pythons of a release."""
        named = self._recipe.python
        names = (named,) if named else self._recipe.releases
        return [wheel for name in names for wheel in self._wheels(name, title)]

    def _wheels(self, package: str, title: str) -> list[IndexFile]:
        return [
            wheel
            for version, wheels in self._listing.releases(package).items()
            if self._recipe.title(version) == title
            for wheel in wheels
            if not wheel.yanked
        ]

    def _wheel(self, package: str, title: str) -> list[IndexFile]:
        return choose_wheel(self._wheels(package, title), _X86)


def _python_update(known: Record, wheels: Sequence[IndexFile]) -> tuple[list[str], Record] | None:
    """Compare the Pythons of a known release; None where the index has no new ones."""
    python = known.get("python") or {}
    added: list[str] = []
    update: Record = {}
    for field, platform in (("wheels", _X86), ("wheels_aarch64", _ARM)):
        found = pythons(wheels, platform)
        if field in python and (more := [one for one in found if one not in python[field]]):
            added += [one for one in more if one not in added]
            update[field] = found
    highest = python.get("max")
    plain = [one for one in pythons(wheels, _X86) if not one.endswith("t")]
    if "wheels" not in python and highest and plain and Version(plain[-1]) > Version(highest):
        added, update = [p for p in plain if Version(p) > Version(highest)], {"max": plain[-1]}
        if "present" in python:
            update["present"] = [*python["present"], *added]
        if "absent" in python:
            update["absent"] = [one for one in python["absent"] if one not in added]
    return (added, update) if added else None


def _is_post_release(title: str, known: set[Version]) -> bool:
    """Tell whether a release is a post-release of a known one, which needs no record."""
    version = Version(title)
    return version.post is not None and Version(version.base_version) in known


def _accepts(stated: str, cuda: tuple[int, int] | None) -> str | None:
    if stated not in ("minor", "major", "range"):
        return stated
    if cuda is None:
        return None
    major, minor = cuda
    forms = {
        "minor": f"{major}.{minor}.*",
        "major": f"{major}.*",
        "range": f">={major}.{minor},<{major + 1}",
    }
    return forms[stated]


def _pythons_of(python: Record) -> list[str]:
    """List the Pythons of a release, to evaluate markers."""
    if found := python.get("wheels"):
        return list(found)
    ends = [python[end] for end in ("min", "max") if python.get(end)]
    return ends or ["3.12"]


def _groups(found: Sequence[RequiredPackage]) -> list[Record]:
    """Group requirements by extra."""
    groups: dict[str, list[str]] = {}
    for one in found:
        groups.setdefault(one.extra, []).append(one.text)
    return [
        {**({"extra": extra} if extra else {}), "packages": texts}
        for extra, texts in groups.items()
    ]


def _metadata_of(identity: WheelIdentity) -> str:
    return f"package metadata of {identity.package}=={identity.version} on the package index"


class BuildRecipe(Struct, frozen=True):
    """Recipe for reading a build from the index.

    Attributes:
        name: name of the build; ``{cuda}`` is its CUDA as ``132``, ``{major}`` its major.
        accepts: ``minor``, ``major`` or ``range`` of the required CUDA, or a range.
        label: whether the name is also the label.
        package: distribution that holds the build; None: the framework's.
        packages: all distributions that hold the build.
        extras: extras whose requirements name the CUDA; empty: the core requirements.
        default: whether a plain install gives this build.
        built_with: whether the required CUDA is the one the build was made with.
        through: pinned framework whose CUDA counts.
    """

    name: str
    accepts: str
    label: bool = False
    package: str | None = None
    packages: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()
    default: bool = False
    built_with: bool = False
    through: str | None = None


class Recipe(Struct, frozen=True):
    """Recipe for reading a framework's releases from the index.

    Attributes:
        releases: distributions whose releases are those of the framework.
        python: distribution whose wheels state the Pythons; None: the first of ``releases``.
        parts: numbers that name a release (TensorRT 11.4.0.106 is 11.4.0); 0: all of them.
        pins: frameworks that every build pins.
        extras: extras of the framework whose requirements are recorded.
    """

    releases: tuple[str, ...]
    builds: tuple[BuildRecipe, ...]
    python: str | None = None
    parts: int = 0
    pins: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()

    def title(self, version: Version) -> str:
        """Return the version of a release as facts write it."""
        if self.parts:
            return ".".join(map(str, (*version.release, 0, 0, 0)[: self.parts]))
        return version.public

    @property
    def names(self) -> tuple[str, ...]:
        """Return every distribution to ask for."""
        builds = (build.package for build in self.builds if build.package)
        return tuple(dict.fromkeys((*self.releases, *builds)))


def recipe_of(document: dict[str, Any]) -> Recipe | None:
    """Read the recipe of a framework; None where its file has none."""
    section = document.get("index")
    if section is None:
        return None
    stated = {"releases": document.get("distributions", [document["component"]]), **section}
    return msgspec.convert(stated, Recipe)
