"""Measure GPU packages without a record for one question (``--read-wheels``)."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from msgspec import Struct

from compatgate.core.facts import Facts
from compatgate.core.facts.records import Record
from compatgate.core.request import Cpu, Os
from compatgate.core.stack import find_labelled_cuda, parse_stack
from compatgate.core.stack_facts import assume_default_wheels
from compatgate.core.versions import parse_version
from compatgate.discovery.cache import default_wheel_folder
from compatgate.errors import BadInput
from compatgate.kit.cli.output import say

if TYPE_CHECKING:
    from compatgate.core.package_finder import OpenPackage
    from compatgate.discovery.lockfiles.interface import PackageOrigin
    from compatgate.discovery.wheels.on_demand import MeasureResult, PackageRequest

Body = dict[str, Any]
_LARGE_MEMBER = 8_000_000


class WheelReading(Struct, frozen=True):
    """Results for packages without a record, with one note per package."""

    stack: Body
    records: tuple[Record, ...] = ()
    notes: tuple[str, ...] = ()


def read_wheels(
    stack: Body,
    origins: Mapping[str, PackageOrigin],
    platforms: Sequence[tuple[Os, Cpu]],
    facts: Facts,
    *,
    network: bool,
    one_question: bool = False,
) -> WheelReading:
    """Find or measure the records that a stack lacks; report failures.

    Without ``network`` only cached measurements count. With ``one_question`` only the libraries for
    this stack's CUDA are read.
    """
    from compatgate.core.package_finder import open_packages, release_of

    if not stack:
        return WheelReading(stack)
    try:
        parsed = parse_stack(stack)
    except BadInput as error:
        raise error.at("stack") from None
    missing = open_packages(parsed, platforms, facts)
    if not missing:
        return WheelReading(stack)
    from compatgate.discovery.wheels.index import read_index_settings
    from compatgate.discovery.wheels.measure import MeasureOptions, QuestionNeeds, list_ptx_toolkits
    from compatgate.discovery.wheels.on_demand import WheelSources, measure_packages

    # the CUDA that the rules will take; None where it is not known
    stated = assume_default_wheels(parsed, facts, ()).get("cuda")
    labelled = find_labelled_cuda(parsed, facts.frameworks)
    cuda = max((one.major_minor for one in (stated, labelled) if one), default=None)
    progress = ProgressLines()
    packages = measure_packages(
        [_package_request(package, origins) for package in missing],
        WheelSources(read_index_settings(), places=facts.wheel_places),
        MeasureOptions(
            toolkits=list_ptx_toolkits(facts.arch),
            cache=default_wheel_folder(),
            question=QuestionNeeds(cuda) if one_question else None,
        ),
        progress,
        network=network,
    )
    why = {release_of(one.wanted.package): one.why for one in packages if one.record is None}
    return WheelReading(
        {**stack, "unmeasured": {**stack.get("unmeasured", {}), **why}} if why else stack,
        tuple(one.record for one in packages if one.record),
        tuple(_note(one, progress) for one in packages),
    )


def _package_request(package: OpenPackage, origins: Mapping[str, PackageOrigin]) -> PackageRequest:
    """Request a package by its file, or only by version if the stated version differs."""
    from compatgate.discovery.wheels.on_demand import PackageRequest, build_request

    origin = origins.get(package.name)
    if origin is None:
        return build_request(package)
    same = parse_version(package.name, origin.version).public == package.version.public
    return PackageRequest(package, origin) if same else build_request(package)


def _note(one: MeasureResult, progress: ProgressLines) -> str:
    """Say in one line what was read for a package, and where."""
    title = f"{one.wanted.package.name} {one.wanted.package.version}"
    record = one.record
    if record is None:
        return f"{title} could not be measured: {one.why}"
    note = f"{record.wheel} (sha256 {record.sha256})"
    if not one.fresh:
        return f"{title}: measured before, {note}"
    size = progress.sizes.get(record.wheel, 0)
    note += f", {size / 1e6:.1f} MB from {urlsplit(record.source).hostname or 'a file'}"
    if record.skipped:
        note += f", without {len(record.skipped)} libraries that this stack does not load"
    return f"{title}: measured now, {note}"


class ProgressLines:
    """Progress lines on standard error, for logs and for several wheels at once.

    ``members`` names large members, too: lines of several wheels would mix.
    """

    def __init__(self, *, members: bool = False) -> None:
        self._members = members
        self.sizes: dict[str, int] = {}
        """Bytes that are read of each wheel."""
        self._writing = threading.Lock()

    def __enter__(self) -> ProgressLines:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def begin(self, wheel: str, size: int) -> None:
        """Print the name of the wheel and the size to read."""
        self.sizes[wheel] = size
        self.say(f"{wheel}: reading {size / 1e6:.1f} MB")

    def member(self, path: str, size: int) -> None:
        """Print the name of a large member."""
        if self._members and size >= _LARGE_MEMBER:
            self.say(f"  {path} ({size / 1e6:.1f} MB)")

    def advance(self, size: int) -> None:
        """Do nothing: lines do not show progress within a member."""

    def say(self, text: str) -> None:
        """Print a line."""
        with self._writing:
            say(text)
