"""Read a package index, and decide which releases count as new.

This covers wheels and their metadata, the Pythons and platforms in wheel names (PEP 425), the
bounds of a refresh, and the news that the commands report.
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
from compatgate.discovery.wheels.archive import Archive, WheelIdentity, read_identity
from compatgate.discovery.wheels.byte_files import HashedFile, LocalFile, RangeFile
from compatgate.discovery.wheels.index import IndexFile, PackageIndex, choose_wheel
from compatgate.errors import NotFound

Kind = Literal["release", "build", "wheel", "rebuild", "python"]
"""``release``: a new release; ``build``: a build for another CUDA; ``wheel``: a wheel for another
platform or Python; ``rebuild``: a wheel that replaces a known one; ``python``: wheels for more
Pythons."""
UNSTATED_BY_INDEX = "minimum driver, minimum capability, GPU code, builds of other indexes"
"""Facts about frameworks and libraries that no index states: those fields stay absent."""


class News(Struct, frozen=True):
    """A release, build or wheel that the facts do not have.

    Attributes:
        package: package on the index.
        version: version as the index writes it.
        what: description for people.
        facts: fact file of the news (``packages/xformers``); ``""``: none can be written.
        wheels: wheels to measure.
        entry: record of a framework or library, for an overlay.
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
        """Return the JSON form that the command prints."""
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
"""Time within which a release's wheels are uploaded; later wheels count as additions."""


class Bounds(Struct, frozen=True):
    """Bounds of a refresh.

    Attributes:
        named: versions asked for by package, whatever their age; empty when all packages are
            refreshed.
        limit: maximum number of releases per package, newest first; 0: all of them.
        since: ISO time; every unknown release uploaded since then counts, older lines included.
        pre: whether pre-releases count.
        yanked: whether yanked wheels count.
        platforms: platforms whose wheels are measured.
    """

    named: Mapping[str, frozenset[str]] = {}
    limit: int = DEFAULT_LIMIT
    since: str = ""
    pre: bool = False
    yanked: bool = False
    platforms: Sequence[Platform] = (Platform(), Platform(cpu="aarch64"))

    def names(self, package: str, version: Version) -> bool:
        """Tell whether a release was asked for by version."""
        return any(Version(text) == version for text in self.named.get(package, ()))

    def allows(self, wheel: IndexFile, version: Version) -> bool:
        """Tell whether a wheel counts: yanked wheels and pre-releases count only when asked for."""
        return (self.yanked or not wheel.yanked) and (self.pre or not version.is_prerelease)

    def within_limit(self, releases: Sequence[T]) -> Sequence[T]:
        """Cut a list of releases, newest first, to the limit."""
        return releases[: self.limit] if self.limit else releases

    def is_new(self, version: Version, uploaded: str, newest: Version, boundary: str) -> bool:
        """Tell whether an unknown release is new, not one that was skipped on purpose.

        Args:
            version: version of the release.
            uploaded: upload time of its first wheel; ``""`` where the index does not say.
            newest: newest release in the facts.
            boundary: upload time of the last wheel in the facts.
        """
        if self.since:
            return not uploaded or uploaded >= self.since
        return version > newest or bool(boundary and uploaded > boundary)


def is_later(uploaded: str, before: str) -> bool:
    """Tell whether a wheel was added to a release after the release's own upload."""
    later, earlier = _moment(uploaded), _moment(before)
    return later is not None and earlier is not None and later - earlier > _ONE_UPLOAD


def _moment(text: str) -> datetime | None:
    """Parse an ISO time, UTC without a zone; None where it is malformed."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


class Listing:
    """A cache of index pages and wheel metadata, each read once.

    Args:
        index: indexes to ask in order; the first that has a package counts.
        transport: transport for metadata inside a wheel, read in ranges.
    """

    def __init__(self, index: PackageIndex, transport: Transport) -> None:
        self._index = index
        self._transport = transport
        self._wheels: dict[str, dict[Version, list[IndexFile]]] = {}
        self._identities: dict[str, WheelIdentity] = {}

    def releases(self, package: str) -> dict[Version, list[IndexFile]]:
        """Return the wheels of a package by version, labels included; empty for an unknown package.

        Raises:
            Unavailable: an index does not answer.
        """
        if package not in self._wheels:
            pages = (self._index.files(url, package) for url in self._index.urls)
            self._wheels[package] = group_by_version(next(filter(None, pages), ()))
        return self._wheels[package]

    def identity(self, wheel: IndexFile) -> WheelIdentity:
        """Return the metadata of a wheel: its metadata file (PEP 658), else read from the wheel.

        Raises:
            Damaged: the content differs from the index's digest.
            NotFound: the wheel does not exist.
            Unavailable: the server does not answer.
        """
        if wheel.name not in self._identities:
            beside = self._index.metadata(wheel)
            self._identities[wheel.name] = (
                read_identity(beside, wheel.name) if beside is not None else self._inside(wheel)
            )
        return self._identities[wheel.name]

    def _inside(self, wheel: IndexFile) -> WheelIdentity:
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


def group_by_version(wheels: Iterable[IndexFile]) -> dict[Version, list[IndexFile]]:
    """Group wheels by version, oldest first; skip files without a wheel's name."""
    found: defaultdict[Version, list[IndexFile]] = defaultdict(list)
    for wheel in wheels:
        try:
            found[parse_wheel_filename(wheel.name)[1]].append(wheel)
        except InvalidWheelFilename:
            continue
    return dict(sorted(found.items()))


def first_upload(wheels: Iterable[IndexFile]) -> str:
    """Return the upload time of the first wheel; ``""`` where the index does not say."""
    return min((wheel.uploaded for wheel in wheels if wheel.uploaded), default="")


def last_upload(wheels: Iterable[IndexFile]) -> str:
    """Return the upload time of the last wheel; ``""`` where the index does not say."""
    return max((wheel.uploaded for wheel in wheels), default="")


def pythons(wheels: Iterable[IndexFile], platform: Platform) -> list[str]:
    """List the Pythons with their own wheel for a platform: ``3.14``, ``3.14t``.

    A wheel for every Python (``py3``, ``abi3``) names no version; its metadata states the range.
    """
    found = {one for w in wheels if is_for(w, platform) for one in _pythons(w.name)}
    return sorted(found, key=lambda text: (Version(text.removesuffix("t")), text))


def _pythons(name: str) -> set[str]:
    tags = parse_wheel_filename(name)[3]
    one = ("cp3", "none")
    exact = (t for t in tags if t.interpreter.startswith("cp3") and t.abi.startswith(one))
    return {f"3.{t.interpreter[3:]}{'t' * t.abi.endswith('t')}" for t in exact}


def is_for(wheel: IndexFile, platform: Platform) -> bool:
    """Tell whether a wheel is for a platform; its Python does not matter."""
    return bool(choose_wheel([wheel], Platform(platform.os, platform.cpu)))


def python_of(name: str) -> str | None:
    """Return the Python of a wheel; None where it serves several."""
    found = _pythons(name)
    return min(found).removesuffix("t") if found else None
