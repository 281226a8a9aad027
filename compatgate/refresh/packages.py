"""Find new wheels of packages with records: new releases and additions to known ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace
from packaging.version import Version

from compatgate.core.facts.records import Record
from compatgate.discovery.lockfiles.platform import Platform
from compatgate.discovery.wheels.index import IndexFile, choose_wheel
from compatgate.refresh.index import (
    Bounds,
    Kind,
    News,
    first_upload,
    is_for,
    is_later,
    last_upload,
    python_of,
)

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
