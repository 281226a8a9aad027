"""What a package index offers: wheels of packages, and the metadata of wheels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from contextlib import closing
from urllib.parse import unquote, urlsplit

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from compatgate.discovery.image.transport import Transport
from compatgate.discovery.wheels import IndexFile, PackageIndex
from compatgate.discovery.wheels.archive import Archive, Identity, identity_of
from compatgate.discovery.wheels.bytefile import HashedFile, LocalFile
from compatgate.discovery.wheels.ranges import RangeFile
from compatgate.errors import NotFound


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
