"""What a refresh looks at: which releases count as new, and how many of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from msgspec import Struct
from packaging.version import Version

from compatgate.discovery.lockfiles import Platform
from compatgate.discovery.wheels import IndexFile

T = TypeVar("T")
DEFAULT_LIMIT = 3
_ONE_UPLOAD = timedelta(days=1)
"""Time within which the wheels of one release are uploaded; what comes later was added later."""


class Bounds(Struct, frozen=True):
    """Bounds of a refresh.

    Attributes:
        named: releases asked for by package, whatever their age; the packages of a refresh of all
            are not here.
        limit: most releases of each package, newest first; 0: all of them.
        since: ISO time; every unknown release uploaded from then on counts, older lines included.
        pre: pre-releases count.
        yanked: yanked wheels count.
        platforms: whose wheels are measured.
    """

    named: Mapping[str, frozenset[str]] = {}
    limit: int = DEFAULT_LIMIT
    since: str = ""
    pre: bool = False
    yanked: bool = False
    platforms: Sequence[Platform] = (Platform(), Platform(cpu="aarch64"))

    def names(self, package: str, version: Version) -> bool:
        """Tell whether a release was asked for by its number."""
        return any(Version(text) == version for text in self.named.get(package, ()))

    def allows(self, wheel: IndexFile, version: Version) -> bool:
        """Tell whether a wheel counts at all: yanked ones and pre-releases count when asked for."""
        return (self.yanked or not wheel.yanked) and (self.pre or not version.is_prerelease)

    def within_limit(self, releases: Sequence[T]) -> Sequence[T]:
        """Return the releases that the limit lets through, of those listed newest first."""
        return releases[: self.limit] if self.limit else releases

    def is_new(self, version: Version, uploaded: str, newest: Version, boundary: str) -> bool:
        """Tell whether a release that the facts do not know is new, and no gap left on purpose.

        Args:
            version: of the release.
            uploaded: when its first wheel was; ``""`` where the index does not say.
            newest: release that the facts know.
            boundary: when the last wheel was uploaded that the facts know.
        """
        if self.since:
            return not uploaded or uploaded >= self.since
        return version > newest or bool(boundary and uploaded > boundary)


def is_later(uploaded: str, before: str) -> bool:
    """Tell whether a wheel was added to a release after the release's own upload."""
    later, earlier = _moment(uploaded), _moment(before)
    return later is not None and earlier is not None and later - earlier > _ONE_UPLOAD


def _moment(text: str) -> datetime | None:
    """Read an ISO time, which is UTC where it does not say; None where it is none."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
