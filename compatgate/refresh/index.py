"""Read what a package index offers, and tell which of it counts as new.

Wheels and their metadata, what a wheel's name says of Pythons and platforms (PEP 425), the
releases that a refresh looks at, and the news that the commands report.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeVar
from urllib.parse import unquote, urlsplit

from msgspec import Struct
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from compatgate.discovery.lockfiles.platform import Platform
from compatgate.discovery.registry.transport import Transport
from compatgate.discovery.wheels.archive import Archive, Identity, identity_of
from compatgate.discovery.wheels.byte_files import HashedFile, LocalFile, RangeFile
from compatgate.discovery.wheels.index import IndexFile, PackageIndex, choose_wheel
from compatgate.errors import NotFound

Kind = Literal["release", "build", "wheel", "rebuild", "python"]
"""``release``: a release; ``build``: a build for another CUDA; ``wheel``: a wheel for another
platform or Python; ``rebuild``: another wheel in the place of a known one; ``python``: wheels for
more Pythons."""
NOT_TOLD = "minimum driver, minimum capability, GPU code, builds of other indexes"
"""What an index cannot tell of a framework or library: those fields stay absent."""


class News(Struct, frozen=True):
    """Something that the facts do not know.

    Attributes:
        package: on the index.
        version: as the index writes it.
        what: in words.
        facts: fact file that it belongs to (``packages/xformers``); ``""``: none can be written.
        wheels: to measure.
        entry: of a framework or library, to lay over the facts.
        uploaded: ISO time; ``""`` where the index does not say.
    """

    package: str
    version: str
    kind: Kind
    what: str
    facts: str
    wheels: tuple[IndexFile, ...] = ()
    entry: dict[str, Any] | None = None
    uploaded: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the form that the command prints."""
        return {
            "package": self.package,
            "version": self.version,
            "kind": self.kind,
            "what": self.what,
            "facts": self.facts or None,
            "wheels": [{"name": wheel.name, "sha256": wheel.sha256} for wheel in self.wheels],
            "uploaded": self.uploaded or None,
        }


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


class Listing:
    """Indexes, each page and each metadata read once.

    Args:
        index: asked in the order of its addresses; the first that knows a package counts.
        transport: for metadata that only the wheel itself has, read in ranges.
    """

    def __init__(self, index: PackageIndex, transport: Transport) -> None:
        self._index = index
        self._transport = transport
        self._wheels: dict[str, dict[Version, list[IndexFile]]] = {}
        self._identities: dict[str, Identity] = {}

    def releases(self, package: str) -> dict[Version, list[IndexFile]]:
        """Return the wheels of a package by version, with its label; none where it is not known.

        Raises:
            Unavailable: an index does not answer.
        """
        if package not in self._wheels:
            pages = (self._index.files(url, package) for url in self._index.urls)
            self._wheels[package] = by_version(next(filter(None, pages), ()))
        return self._wheels[package]

    def identity(self, wheel: IndexFile) -> Identity:
        """Return the metadata of a wheel: beside it (PEP 658), else read from the wheel.

        Raises:
            Damaged: it is not what the index says.
            NotFound: there is no such wheel.
            Unavailable: the server does not answer.
        """
        if wheel.name not in self._identities:
            beside = self._index.metadata(wheel)
            self._identities[wheel.name] = (
                identity_of(beside, wheel.name) if beside is not None else self._inside(wheel)
            )
        return self._identities[wheel.name]

    def _inside(self, wheel: IndexFile) -> Identity:
        address = urlsplit(wheel.url)
        if address.scheme == "file":
            try:
                file: LocalFile | RangeFile = LocalFile(unquote(address.path))
            except NotFound as error:
                hint = f"store the wheel, or its metadata as {wheel.name}.metadata"
                raise NotFound(error.problem, field=wheel.name, hint=hint) from error
        else:
            file = RangeFile(
                self._transport, wheel.url, wheel.name, size=wheel.size, headers=wheel.headers
            )
        with closing(file):
            return Archive(HashedFile(file), wheel.name).identity


def by_version(wheels: Iterable[IndexFile]) -> dict[Version, list[IndexFile]]:
    """Group wheels by their version, oldest first; what has no wheel's name is left out."""
    found: defaultdict[Version, list[IndexFile]] = defaultdict(list)
    for wheel in wheels:
        try:
            found[parse_wheel_filename(wheel.name)[1]].append(wheel)
        except InvalidWheelFilename:
            continue
    return dict(sorted(found.items()))


def first_upload(wheels: Iterable[IndexFile]) -> str:
    """Return when the first of some wheels was uploaded; ``""`` where nothing says it."""
    return min((wheel.uploaded for wheel in wheels if wheel.uploaded), default="")


def last_upload(wheels: Iterable[IndexFile]) -> str:
    """Return when the last of some wheels was uploaded; ``""`` where nothing says it."""
    return max((wheel.uploaded for wheel in wheels), default="")


def pythons(wheels: Iterable[IndexFile], platform: Platform) -> list[str]:
    """List the Pythons that have a wheel of their own for a platform: ``3.14``, ``3.14t``.

    A wheel for every Python (``py3``, ``abi3``) names none; its metadata says the range.
    """
    found = {one for w in wheels if is_for(w, platform) for one in _pythons(w.name)}
    return sorted(found, key=lambda text: (Version(text.removesuffix("t")), text))


def _pythons(name: str) -> set[str]:
    tags = parse_wheel_filename(name)[3]
    one = ("cp3", "none")
    exact = (t for t in tags if t.interpreter.startswith("cp3") and t.abi.startswith(one))
    return {f"3.{t.interpreter[3:]}{'t' * t.abi.endswith('t')}" for t in exact}


def is_for(wheel: IndexFile, platform: Platform) -> bool:
    """Tell whether a wheel is for a platform, whatever its Python."""
    return bool(choose_wheel([wheel], Platform(platform.os, platform.cpu)))


def python_of(name: str) -> str | None:
    """Return the Python that a wheel is for; None where it serves several."""
    found = _pythons(name)
    return min(found).removesuffix("t") if found else None
