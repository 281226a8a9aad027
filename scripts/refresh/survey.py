"""Compare the facts with an index, find new wheels, and write news for review.

A refresh writes a folder of overlays.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import yaml
from msgspec import Struct
from msgspec.structs import replace
from packaging.utils import canonicalize_name
from packaging.version import Version

from compatgate.catalog import open_library, records, sources
from compatgate.catalog.library import Library
from compatgate.catalog.overlay import find_overlays
from compatgate.catalog.sources import title
from compatgate.core.facts import Facts
from compatgate.core.facts.records import Record
from compatgate.discovery.lockfiles.platform import Platform
from compatgate.discovery.wheels.index import IndexFile, choose_wheel
from compatgate.errors import BadInput, CompatgateError, NotFound
from refresh.frameworks import FrameworkReader, recipe_of
from refresh.index import (
    Bounds,
    Kind,
    Listing,
    News,
    first_upload,
    is_for,
    is_later,
    last_upload,
    python_of,
)
from refresh.libraries import LibraryReader

Releases = Mapping[Version, Sequence[IndexFile]]


def news_of_package(
    name: str, known: Sequence[Record], releases: Releases, bounds: Bounds
) -> tuple[list[News], int]:
    """Find wheels of a package that are on the index and not in its records.

    Args:
        name: normalised name of the package.
        known: records of the package.
        releases: wheels on the index by version.
        bounds: bounds of the refresh.

    Returns:
        The news, newest release first, and the number of new releases beyond the limit.
    """
    by_version: dict[Version, list[Record]] = {}
    for record in known:
        by_version.setdefault(Version(record.version), []).append(record)
    offered = {
        version: allowed
        for version, wheels in releases.items()
        if (allowed := [wheel for wheel in wheels if bounds.allows(wheel, version)])
    }
    fresh = _new_releases(name, by_version, offered, bounds)
    kept = bounds.within_limit(fresh)
    found = [
        news
        for version in kept
        if (news := _release(name, version, by_version, offered[version], known, bounds))
    ]
    for version in sorted(set(by_version) & set(offered), reverse=True):
        if not bounds.named.get(name) or bounds.names(name, version):
            found += _additions(name, version, by_version[version], offered[version], bounds)
    return found, len(fresh) - len(kept)


def _new_releases(
    name: str,
    known: Mapping[Version, Sequence[Record]],
    offered: Releases,
    bounds: Bounds,
) -> list[Version]:
    unknown = [version for version in offered if version not in known]
    if bounds.named.get(name):
        return sorted((v for v in unknown if bounds.names(name, v)), reverse=True)
    newest = max((Version(version.public) for version in known), default=Version("0"))
    boundary = _boundary(known, offered)
    return sorted(
        (
            version
            for version in unknown
            if bounds.is_new(version, first_upload(offered[version]), newest, boundary)
        ),
        reverse=True,
    )


def _boundary(known: Mapping[Version, Sequence[Record]], offered: Releases) -> str:
    """Return the upload time of the last wheel that has a record."""
    recorded = {record.wheel for records in known.values() for record in records}
    wheels = (wheel for version in known for wheel in offered.get(version, ()))
    return last_upload(wheel for wheel in wheels if wheel.name in recorded)


def _release(
    name: str,
    version: Version,
    known: Mapping[Version, Sequence[Record]],
    wheels: Sequence[IndexFile],
    records: Sequence[Record],
    bounds: Bounds,
) -> News | None:
    chosen = _representatives(wheels, _usual_python(records), bounds)
    if not chosen:
        return None
    another = any(one.public == version.public for one in known)
    kind: Kind = "build" if another else "release"
    facts, uploaded = f"packages/{name}", first_upload(wheels)
    return News(name, str(version), kind, f"new {kind}", facts, chosen, uploaded=uploaded)


def _usual_python(records: Sequence[Record]) -> str | None:
    """Return the Python of the newest records, so that new wheels are comparable."""
    newest = sorted(records, key=lambda record: Version(record.version), reverse=True)
    return next((python for r in newest if (python := python_of(r.wheel))), None)


def _representatives(
    wheels: Sequence[IndexFile], python: str | None, bounds: Bounds
) -> tuple[IndexFile, ...]:
    """Choose one wheel per platform; choose a wheel for all platforms once."""
    found = [
        wheel
        for platform in bounds.platforms
        for wheel in choose_wheel(wheels, replace(platform, python=python or platform.python))
    ]
    return tuple({wheel.name: wheel for wheel in found}.values())


def _additions(
    name: str,
    version: Version,
    records: Sequence[Record],
    wheels: Sequence[IndexFile],
    bounds: Bounds,
) -> Iterator[News]:
    """Find additions to a known release: a rebuild, another Python, another platform."""
    facts, label = f"packages/{name}", str(version)
    digests = {record.wheel: record.sha256 for record in records}
    for wheel in wheels:
        if digests.get(wheel.name) and wheel.sha256 not in (None, digests[wheel.name]):
            what = f"{wheel.name} was rebuilt: its SHA-256 changed"
            yield News(name, label, "rebuild", what, facts, (wheel,), uploaded=wheel.uploaded)
    began = last_upload(wheel for wheel in wheels if wheel.name in digests)
    asked = bounds.names(name, version)
    for platform in bounds.platforms:
        here = [w for w in wheels if is_for(w, platform)]
        covered = any(is_for(IndexFile(r.wheel, ""), platform) for r in records)
        later = [
            w
            for w in here
            if w.name not in digests
            and (is_later(w.uploaded, began) or (asked and not covered))
            and (not bounds.since or w.uploaded >= bounds.since)
        ]
        for wheel in _choose_per_python(later, platform, covered=covered):
            what = f"{wheel.name} was added {'later' if covered else 'for another platform'}"
            yield News(name, label, "wheel", what, facts, (wheel,), uploaded=wheel.uploaded)


def _choose_per_python(
    wheels: Sequence[IndexFile], platform: Platform, *, covered: bool
) -> list[IndexFile]:
    """Choose one wheel per Python; choose one wheel only for a platform without a record."""
    if not covered:
        return choose_wheel(wheels, platform)
    found: dict[str | None, IndexFile] = {}
    for wheel in sorted(wheels, key=lambda wheel: wheel.uploaded):
        found[python_of(wheel.name)] = wheel
    return list(found.values())


LIBRARIES = ("cudnn", "nccl", "cuda_driver")
NewsAndOmitted = tuple[list[News], int]
FindNews = Callable[[Listing, Bounds], NewsAndOmitted]


class RefreshSubject(Struct, frozen=True):
    """A framework, library or package that a refresh compares with the index.

    Attributes:
        facts: fact file, ``packages/xformers``.
        names: names that a person may use, distributions included.
        distributions: distributions to read on the index.
        look: function that finds news.
        has_wheels: whether the index is expected to have wheels; a source-only package has none.
    """

    facts: str
    names: frozenset[str]
    distributions: tuple[str, ...]
    look: FindNews
    has_wheels: bool = True


class Survey(Struct, frozen=True):
    """Result of the comparison for one framework, library or package.

    Attributes:
        left_out: number of new releases beyond the limit.
        problem: why the comparison failed; None: it did not fail.
    """

    facts: str
    news: tuple[News, ...] = ()
    left_out: int = 0
    problem: CompatgateError | None = None


def list_subjects(library: Library, facts: Facts) -> list[RefreshSubject]:
    """List what a refresh compares: frameworks and libraries, then packages with records."""
    found = []
    for name in (*(n for n in library.names if n.startswith("frameworks/")), *LIBRARIES):
        one = _framework(name, library, facts) if "/" in name else _library(name, library)
        if one:
            found.append(one)
    found += [package(name, facts) for name in sorted(facts.recorded)]
    return found


def _framework(source: str, library: Library, facts: Facts) -> RefreshSubject | None:
    document = library.document(source)
    recipe = recipe_of(document)
    if recipe is None:
        return None

    def look(listing: Listing, bounds: Bounds) -> NewsAndOmitted:
        return FrameworkReader(document, recipe, listing, facts.packages).news(bounds)

    names = frozenset((document["component"], *recipe.names))
    return RefreshSubject(source, names, recipe.names, look)


def _library(source: str, library: Library) -> RefreshSubject | None:
    document = library.document(source)
    distributions = tuple(document.get("distributions", ()))

    def look(listing: Listing, bounds: Bounds) -> NewsAndOmitted:
        return LibraryReader(source, document, listing).news(bounds)

    names = frozenset((source, *distributions))
    return RefreshSubject(source, names, distributions, look) if distributions else None


def package(name: str, facts: Facts) -> RefreshSubject:
    """Describe a package, with or without records."""

    def look(listing: Listing, bounds: Bounds) -> NewsAndOmitted:
        return news_of_package(name, facts.records(name), listing.releases(name), bounds)

    has_wheels = bool(facts.records(name)) or name not in facts.recorded
    return RefreshSubject(f"packages/{name}", frozenset((name,)), (name,), look, has_wheels)


def choose_subjects(
    known: Sequence[RefreshSubject], names: Sequence[str], facts: Facts
) -> list[RefreshSubject]:
    """Choose by name; choose all without names, and treat unknown names as packages."""
    if not names:
        return list(known)
    found: dict[str, RefreshSubject] = {}
    for name in map(str, map(canonicalize_name, names)):
        named = [one for one in known if name in one.names or title(one.facts) == name]
        for one in named or [package(name, facts)]:
            found[one.facts] = one
    return list(found.values())


def survey(things: Sequence[RefreshSubject], listing: Listing, bounds: Bounds) -> Iterator[Survey]:
    """Compare each one with the index; a failure is a problem of that one alone."""
    for one in things:
        try:
            if not any(listing.releases(name) for name in one.distributions):
                if not one.has_wheels:
                    continue
                raise NotFound("the index has no wheels", field=", ".join(one.distributions))
            news, left_out = one.look(listing, bounds)
        except CompatgateError as error:
            yield Survey(one.facts, problem=error)
            continue
        yield Survey(one.facts, tuple(news), left_out)


_FORMS = {"cudnn": "facts/cudnn/v1", "nccl": "facts/nccl/v1"}
_WIDTH = 120


class Folder:
    """A folder of overlays with the layout of the shipped facts.

    Args:
        path: path of the folder; the first file creates it.
        overlays: overlays that apply before the written files.

    Raises:
        BadInput: the path is a file, or the folder of the shipped facts.
    """

    def __init__(self, path: str, overlays: Sequence[str] | None = None) -> None:
        self.path = path
        self._below = [overlay.path for overlay in find_overlays(overlays)]
        self.written: list[str] = []
        real, shipped = os.path.realpath(path), os.path.realpath(sources.facts_dir())
        if real == shipped or real.startswith(f"{shipped}{os.sep}"):
            hint = "name another folder, review the files, then copy them"
            raise BadInput("holds the shipped facts", field="--out", value=path, hint=hint)
        if os.path.exists(path) and not os.path.isdir(path):
            raise BadInput("is not a folder", field="--out", value=path)

    def has(self, package: str, wheel: str, sha256: str | None) -> bool:
        """Tell whether an earlier run measured a wheel."""
        return any(
            record.wheel == wheel and sha256 in (None, record.sha256)
            for record in self._records(package)
        )

    def add_record(self, record: Record) -> None:
        """Add the record of a wheel to the folder."""
        kept = {one.wheel: one for one in self._records(record.package)}
        kept[record.wheel] = record
        text = records.to_yaml(record.package, list(kept.values()), with_sources=True)
        self._write(f"packages/{record.package}", text)

    def add_entry(self, news: News) -> None:
        """Add the record of a framework or library to the folder."""
        assert news.entry is not None  # noqa: S101 - the caller checked
        head: dict[str, Any] = {"schema": _FORMS.get(news.facts, "facts/framework/v1")}
        if "/" in news.facts:
            head["component"] = sources.title(news.facts)
        there = self._document(news.facts) or {**head, "releases": []}
        releases = {row["version"]: row for row in there["releases"]}
        key = news.entry["version"]
        releases[key] = {**releases.get(key, {}), **news.entry}
        document = {**there, "releases": list(releases.values())}
        text = yaml.safe_dump(
            document, sort_keys=False, default_flow_style=None, width=_WIDTH, allow_unicode=True
        )
        self._write(news.facts, text)

    def check(self) -> None:
        """Check the written files as overlays of the facts.

        Raises:
            BadInput: a file is not a valid overlay.
        """
        open_library([*self._below, *self.written])

    def _records(self, package: str) -> tuple[Record, ...]:
        facts = f"packages/{package}"
        document = self._document(facts)
        return records.parse_records(package, document, self._path(facts)) if document else ()

    def _document(self, facts: str) -> dict[str, Any] | None:
        path = self._path(facts)
        if not os.path.isfile(path):
            return None
        return sources.parse(sources.read_bytes(path), path)

    def _path(self, facts: str) -> str:
        return os.path.join(self.path, *facts.split("/")) + sources.SUFFIX

    def _write(self, facts: str, text: str) -> None:
        path = self._path(facts)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        beside = f"{path}.part"
        with open(beside, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(beside, path)
        if path not in self.written:
            self.written.append(path)
