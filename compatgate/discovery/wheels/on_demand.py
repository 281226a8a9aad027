"""Find records for packages without one: in earlier measurements, else measure now.

The wheel comes from the index that a lock names, from the place that serves its version label, or
from the user's own indexes. Addresses of places come from facts and overlays alone, and links and
redirects stay on the hosts that a place names. Records are stored by digest without expiry, so each
digest must be verified: a wheel whose digest the user's own index or a place states is read in
parts; every other wheel is read as a whole and its digest compared.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from urllib.parse import quote, unquote, urlsplit

from msgspec import Struct
from msgspec.structs import replace
from packaging.version import Version

from compatgate.core.facts.records import FoundPlace, Record, WheelPlaces
from compatgate.core.package_finder import OpenPackage
from compatgate.discovery.cache import read_choice, write_choice
from compatgate.discovery.lockfiles.interface import PackageOrigin
from compatgate.discovery.lockfiles.platform import Platform
from compatgate.discovery.registry.limits import Deadline, ImageOptions
from compatgate.discovery.registry.transport import Transport
from compatgate.discovery.wheels.index import (
    IndexFile,
    PackageIndex,
    choose_wheel,
    strip_credentials,
)
from compatgate.discovery.wheels.measure import MeasureOptions, Progress, measure_file, read_record
from compatgate.errors import BadInput, CompatgateError, DamagedContent, NotFound, Unavailable

TIME_LIMIT_S = 900.0
"""Time limit for one wheel, in seconds."""
_PYPI = "pypi.org"
_LONGEST_WHY = 500


class WheelSources(Struct, frozen=True):
    """The sources of wheels: the user's own indexes, in order, which replace PyPI.

    ``others`` allows indexes and URLs in a lock. Of the ``places`` beside the indexes those that
    are ``allowed`` may be asked (None: all).
    """

    indexes: tuple[str, ...]
    others: bool = True
    places: WheelPlaces | None = None
    allowed: frozenset[str] | None = None
    transport: ImageOptions = ImageOptions()
    seconds: float = TIME_LIMIT_S


class PackageRequest(Struct, frozen=True):
    """A package whose record is requested; the origin of one only stated is its version alone."""

    package: OpenPackage
    origin: PackageOrigin

    @property
    def platform(self) -> Platform:
        """Return the platform of the requested wheel."""
        python = self.package.python
        return Platform(self.package.os, self.package.cpu, python.text if python else None)

    @property
    def release(self) -> str:
        """Return the release in the form of an installer."""
        return f"{self.origin.name}=={self.origin.version}"

    @property
    def locked(self) -> IndexFile | None:
        """Return the installer's choice among the wheels in the lock."""
        files = [
            IndexFile(
                _url_file_name(wheel.url), wheel.url.partition("#")[0], sha256=wheel.sha256 or None
            )
            for wheel in self.origin.wheels
            if not wheel.label
        ]
        return next(iter(choose_wheel(files, self.platform)), None)

    @property
    def digest(self) -> str | None:
        """Return the SHA-256 of the wheel, where the lock or stack states a single one."""
        if (locked := self.locked) and locked.sha256:
            return locked.sha256
        return self.origin.digests[0] if len(self.origin.digests) == 1 else None


class MeasureResult(Struct, frozen=True):
    """The record of a package, if found or measured; ``transient``: a later try may succeed."""

    wanted: PackageRequest
    record: Record | None = None
    fresh: bool = False
    why: str = ""
    transient: bool = False


def build_request(package: OpenPackage) -> PackageRequest:
    """Describe a package by its stack alone."""
    wheel = package.wheel
    digests = (wheel.sha256,) if wheel and wheel.sha256 else ()
    indexes = (wheel.index if wheel else "",)
    origin = PackageOrigin(package.name, package.version.text, indexes=indexes, digests=digests)
    return PackageRequest(package, origin)


def find_record(
    wanted: PackageRequest, sources: WheelSources, options: MeasureOptions, *, aged: bool
) -> Record | None:
    """Return the record of an earlier measurement without any request."""
    digest = wanted.digest
    if digest is None:
        choice = read_choice(options.cache, _choice_key(wanted, sources), aged=aged)
        digest = choice.sha256 if choice else None
    record = read_record(digest, options) if digest else None
    if record is None or not _matches_request(record, wanted):
        return None
    return _rename_record(record, wanted)


def measure_package(
    wanted: PackageRequest,
    sources: WheelSources,
    options: MeasureOptions,
    progress: Progress | None,
) -> Record:
    """Measure the wheel of a package, from the index that lists it."""
    if wanted.origin.ecosystem != "pypi":
        raise BadInput("only wheels are measured, not conda packages", field=wanted.release)
    failed: CompatgateError | None = None
    asked: list[str] = []
    with Deadline(sources.seconds) as deadline:
        for place in _wheel_places(wanted, sources):
            asked.append(place.title)
            try:
                with Transport(place.transport or sources.transport, deadline) as transport:
                    record = _measure_at(place, wanted, options, transport, progress)
            except (NotFound, Unavailable) as error:
                failed = failed or error
                continue
            if not _matches_request(record, wanted):
                what = f"its wheel is of {record.package} {record.version}"
                raise DamagedContent(what, field=wanted.release, hint="no record was made")
            if record.sha256:
                key = _choice_key(wanted, sources)
                write_choice(options.cache, key, record.wheel, record.sha256)
            return _rename_record(record, wanted)
    if failed is None:
        raise NotFound("no index is configured for it", field=wanted.release)
    failed.problem += f"; asked: {', '.join(dict.fromkeys(filter(None, asked)))}"
    raise failed


def find_or_measure_package(
    wanted: PackageRequest,
    sources: WheelSources,
    options: MeasureOptions,
    progress: Progress | None = None,
    *,
    network: bool = True,
) -> MeasureResult:
    """Find or measure a record; report every error in the result."""
    try:
        if known := find_record(wanted, sources, options, aged=not network):
            return MeasureResult(wanted, known)
        if not network:
            why = "no earlier measurement of its wheel is kept here"
            if place := next(_wheel_places(wanted, sources), None):
                name = f"{wanted.origin.name.replace('-', '_')}-{wanted.origin.version}-*.whl"
                names = " or ".join(one.name for one in place.files) or name
                why += f"; fetch {names} from {place.title}"
            return MeasureResult(wanted, why=why)
        return MeasureResult(
            wanted, measure_package(wanted, sources, options, progress), fresh=True
        )
    except Exception as error:  # a hostile wheel must not stop the other answers
        transient = isinstance(error, Unavailable)
        return MeasureResult(wanted, why=explain_failure(error, wanted), transient=transient)


def measure_packages(
    wanted: Sequence[PackageRequest],
    sources: WheelSources,
    options: MeasureOptions,
    progress: Progress | None,
    *,
    network: bool,
) -> list[MeasureResult]:
    """Find or measure the records of several packages, in order, two wheels at a time."""
    results: dict[int, MeasureResult] = {}
    numbers = iter(range(len(wanted)))

    def work() -> None:
        for number in numbers:  # the threads share it: each takes the next one
            results[number] = find_or_measure_package(
                wanted[number], sources, options, progress, network=network
            )

    # An interrupted command must not wait for its threads.
    threads = [threading.Thread(target=work, daemon=True) for _ in wanted[:2]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results[number] for number in range(len(wanted))]


def explain_failure(error: Exception, wanted: PackageRequest) -> str:
    """Return a finding's text on why no record exists."""
    if not isinstance(error, CompatgateError):
        return f"its wheel could not be read ({type(error).__name__})"
    about = error.field or ""
    where = "" if about in ("", "image", wanted.release) else f"{strip_credentials(about)}: "
    return f"{where}{error.problem}"[:_LONGEST_WHY]


class WheelSource(Struct, frozen=True):
    """An index or a page, or wheels at URLs, of which one exists.

    The digests of one's ``own`` are trusted. Its files may be on the ``hosts`` (None: any); a
    ``flat`` page links the wheels themselves.
    """

    index: str = ""
    files: tuple[IndexFile, ...] = ()
    own: bool = False
    title: str = ""
    hosts: frozenset[str] | None = None
    flat: bool = False
    transport: ImageOptions | None = None


def _wheel_places(wanted: PackageRequest, sources: WheelSources) -> Iterator[WheelSource]:
    """List the sources of a wheel in order.

    The place of its label comes before the user's indexes, a place of wheels without a label after
    them, the URL in a lock last.
    """
    own = tuple(url.rstrip("/") for url in sources.indexes)
    origin = wanted.origin
    places: list[WheelSource] = []
    if origin.ecosystem == "pypi":
        places += known_places(origin.name, origin.version, wanted.platform, sources)
    labelled = "+" in origin.version
    for named in origin.indexes:
        url = named.rstrip("/")
        same_place = [one for one in places if url and one.index == url]
        if not url or urlsplit(url).hostname == _PYPI or url in map(strip_credentials, own):
            same = [one for one in own if strip_credentials(one) == url]
            listed = [WheelSource(o, own=True, title=strip_credentials(o)) for o in same or own]
            yield from [*places, *listed] if labelled else [*listed, *places]
        elif same_place:
            yield from same_place
        elif not sources.others:
            what = f"its index {strip_credentials(url)} is not allowed here"
            raise BadInput(what, field=wanted.release)
        elif urlsplit(url).scheme in ("https", "http", "file"):
            yield WheelSource(url, title=strip_credentials(url))
    locked = wanted.locked
    if locked and sources.others and locked.url.startswith(("https://", "http://")):
        yield WheelSource(files=(locked,), title=strip_credentials(locked.url))


def known_places(
    name: str, version: str, platform: Platform, sources: WheelSources
) -> Iterator[WheelSource]:
    """Yield the allowed places of a release, each with the hosts that it may lead to."""
    if sources.places is None:
        return
    for found in sources.places.find(name, version):
        place = found.place
        if sources.allowed is not None and place.name not in sources.allowed:
            continue
        host = urlsplit(found.url).netloc
        hosts = frozenset(place.hosts) | {host}
        trusted = frozenset(sources.transport.registries or ()) | {host}
        transport = replace(sources.transport, registries=trusted, leads=hosts)
        title = f"{place.name} ({found.url})"
        if place.kind == "file":
            files = tuple(
                IndexFile(name, f"{found.url}/{quote(name, safe='+')}")
                for name in _file_names(found, platform)
            )
            yield WheelSource(files=files, title=title, transport=transport)
        else:
            flat = place.kind == "page"
            yield WheelSource(found.url, (), True, title, hosts, flat, transport)


_PYTHONS = ("312", "311", "310", "313")
"""Pythons whose wheels are tried where the stack states none."""


def _file_names(found: FoundPlace, platform: Platform) -> Iterator[str]:
    python = platform.python
    pythons = ("".join(python.split(".")[:2]),) if python else _PYTHONS
    windows = platform.os == "windows"
    for name in found.place.files:
        if ("win" in name.rpartition("-")[2]) != windows:
            continue
        for py in pythons if "{py}" in name else pythons[:1]:
            yield name.format_map({**found.fields, "py": py, "cpu": platform.cpu})


def _measure_at(
    place: WheelSource,
    wanted: PackageRequest,
    options: MeasureOptions,
    transport: Transport,
    progress: Progress | None,
) -> Record:
    index = PackageIndex((place.index,), transport, hosts=place.hosts, flat=place.flat)
    failed: CompatgateError = NotFound("has no wheel for the platform", field=wanted.release)
    stated = wanted.digest
    for file in place.files or (_choose_listed(index, wanted),):
        if stated and file.sha256 not in (None, stated):
            what = f"the index states the SHA-256 {file.sha256}, the lock {stated}"
            raise DamagedContent(what, field=file.name, hint="no record was made")
        how = replace(options, whole=not (place.own and file.sha256))
        file = replace(file, sha256=stated or file.sha256)
        try:
            return measure_file(file, index, transport, how, progress)
        except NotFound as error:
            failed = error
    raise failed


def _choose_listed(index: PackageIndex, wanted: PackageRequest) -> IndexFile:
    """Choose the wheel on an index: the locked one, else the installer's choice."""
    files = index.wheels(wanted.origin.name, wanted.origin.version)
    locked, wheel, digests = wanted.locked, wanted.package.wheel, wanted.origin.digests
    if locked:
        files = [file for file in files if file.name == locked.name]
    elif digests:
        files = [file for file in files if file.sha256 is None or file.sha256 in digests]
    elif wheel and wheel.file:
        files = [file for file in files if file.name == wheel.file]
    chosen = choose_wheel(files, wanted.platform)
    if not chosen:
        meant = "with the name or digest that is stated" if locked or digests else "of it"
        what = f"the index has no wheel {meant} for {wanted.platform}"
        raise NotFound(what, field=wanted.release)
    return chosen[0]


def _url_file_name(url: str) -> str:
    path = url.partition("#")[0].partition("?")[0].replace("\\", "/")
    return unquote(path.rpartition("/")[2])


def _matches_request(record: Record, wanted: PackageRequest) -> bool:
    """Return whether a record matches package and release; a digest may belong to another wheel."""
    same = Version(record.version).public == Version(wanted.package.version.public).public
    return same and record.package == wanted.origin.name


def _rename_record(record: Record, wanted: PackageRequest) -> Record:
    """Return the record under the name and version of the stack.

    A component has another name than its package, and only the index may name the build.
    """
    if record.unread:
        names = ", ".join(path.rpartition("/")[2] for path in record.unread[:3])
        what = f"its wheel holds libraries that cannot be read: {names}"
        raise BadInput(what, field=wanted.release)
    package = wanted.package
    return replace(record, package=package.name, version=package.version.text)


def _choice_key(wanted: PackageRequest, sources: WheelSources) -> list[object]:
    package, origin = wanted.package, wanted.origin
    indexes = [strip_credentials(url) for url in (*origin.indexes, "|", *sources.indexes)]
    file = package.wheel.file if package.wheel else ""
    names = [_url_file_name(wheel.url) for wheel in origin.wheels]
    platform = [package.os, package.cpu, package.python.text if package.python else ""]
    return [origin.name, origin.version, *platform, file, names, list(origin.digests), indexes]
