"""Measure wheels of packages without a record, next to the questions.

Only indexes on the operator's list are asked. A question never waits for a wheel: the package
is open now, its wheel is measured, and the next question gets what it carries. Records are
stored by digest in the folder of `default_folder`: any worker or later start finds them, and a
replica elsewhere measures for itself.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

from msgspec import Struct

from compatgate.core.facts import Facts
from compatgate.core.facts.nvidia import CudaArch
from compatgate.core.facts.records import Record
from compatgate.core.package_finder import OpenPackage, open_packages, release_of
from compatgate.core.rules.packages import package_open
from compatgate.core.stack import parse_stack
from compatgate.core.verdict import Verdict
from compatgate.discovery.registry.limits import ImageOptions
from compatgate.discovery.wheels.measure import MeasureOptions, toolkits_of_ptx
from compatgate.discovery.wheels.on_demand import (
    MeasureResult,
    WheelSources,
    explain_failure,
    find_known,
    find_or_measure,
    request_of,
)
from compatgate.errors import CompatgateError

_FIRST_PAUSE_S = 30.0
_LONGEST_PAUSE_S = 3600.0
_MOST_FAILED = 1024
_MEASURING = "its wheel is being measured: ask again"
_FULL = "others are being measured: ask again later"
_log = logging.getLogger("compatgate.gate")


class WheelSettings(Struct, frozen=True):
    """What the operator lets the gate measure.

    Attributes:
        indexes: that may be asked, in order; none: nothing is measured.
        cache: folder of records; None: none is used or kept.
        at_once: wheels that are measured at the same time.
        waiting: packages that may wait for that.
        transport: networks and TLS, as images have them.
        first_pause_s: before a package that failed is tried again; twice as long each time.
    """

    indexes: tuple[str, ...] = ()
    cache: str | None = None
    at_once: int = 2
    waiting: int = 64
    transport: ImageOptions = ImageOptions()
    first_pause_s: float = _FIRST_PAUSE_S


class WheelRecords(Struct, frozen=True):
    """What is known of the open packages of a verdict.

    Attributes:
        records: that were measured before, of packages that are not open with them.
        why: there is no record, by release (``xformers==0.0.35``).
    """

    records: tuple[Record, ...] = ()
    why: Mapping[str, str] = {}


class _Failure(Struct):
    """A package that could not be measured; it is tried again when the time has come."""

    why: str
    tries: int
    until: float


class Wheels:
    """Measures wheels in threads of its own; safe to use from any number of threads.

    Args:
        settings: of the operator.
        know: is told of new records.
    """

    def __init__(self, settings: WheelSettings, know: Callable[[Iterable[Record]], object]) -> None:
        self._settings = settings
        self._know = know
        self._changed = threading.Condition()
        self._under_way: set[OpenPackage] = set()
        self._waiting: deque[OpenPackage] = deque()
        self._failed: OrderedDict[OpenPackage, _Failure] = OrderedDict()
        self._threads = 0
        self._toolkits: CudaArch | None = None

    def missing(self, verdict: Verdict, facts: Facts) -> tuple[OpenPackage, ...]:
        """List the packages of a verdict that no record describes; none for nearly all."""
        if not any(finding.rule == package_open.id for finding in verdict.findings):
            return ()
        platforms = [(pool["os"], pool["cpu"]) for pool in verdict.pools]
        return open_packages(parse_stack(verdict.stack), platforms, facts)

    def ask(self, missing: Iterable[OpenPackage], facts: Facts) -> WheelRecords:
        """Say what is known of packages, and have the others measured; waits for no network."""
        self._toolkits = facts.arch
        records: list[Record] = []
        why: dict[str, str] = {}
        for package in missing:
            found = self._state(package)
            if isinstance(found, Record) and found not in facts.records(package.name):
                records.append(found)
            elif isinstance(found, Record):
                why[release_of(package)] = f"{found.wheel} was measured and is of another build"
            else:
                why[release_of(package)] = found
        return WheelRecords(tuple(records), why)

    def noted(self, body: Mapping[str, Any], found: WheelRecords) -> Mapping[str, Any]:
        """Return a question whose stack says why packages have no record."""
        if not found.why:
            return body
        stack = body["stack"]
        before = stack.get("unmeasured")
        why = {**(before if isinstance(before, Mapping) else {}), **found.why}
        return {**body, "stack": {**stack, "unmeasured": why}}

    def _state(self, package: OpenPackage) -> Record | str:
        """Return a record that is kept, by this process or another one, or why there is none."""
        try:
            known = find_known(request_of(package), self._sources, self._options, aged=False)
        except CompatgateError as error:
            return explain_failure(error, request_of(package))
        except ValueError:  # a version that is none on an index
            known = None
        if known:
            return known
        with self._changed:
            failure = self._failed.get(package)
            if failure and package not in self._under_way and time.monotonic() < failure.until:
                return failure.why
        return self._begin(package)

    def _begin(self, package: OpenPackage) -> str:
        with self._changed:
            if package in self._under_way:
                if not self._threads:
                    self._start_thread()
                return _MEASURING
            if len(self._waiting) >= self._settings.waiting:
                return _FULL
            self._under_way.add(package)
            self._waiting.append(package)
            if self._threads < self._settings.at_once:
                self._start_thread()
        return _MEASURING

    def _start_thread(self) -> None:
        """Have one more thread measure, where the system has one."""
        thread = threading.Thread(target=self._work, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # what waits is measured by another one, or begun by a later question
            return
        self._threads += 1

    def _work(self) -> None:
        """Measure what waits, until nothing does."""
        while True:
            with self._changed:
                if not self._waiting:
                    self._threads -= 1
                    return
                package = self._waiting.popleft()
            found = find_or_measure(request_of(package), self._sources, self._options)
            try:
                if found.record is not None:
                    self._know([found.record])
            except Exception:  # this thread measures for others, too
                _log.exception("the record of %s cannot be used", release_of(package))
            self._settle(package, found)

    def _settle(self, package: OpenPackage, found: MeasureResult) -> None:
        what = found.record.wheel if found.record else f"not measured: {found.why}"
        _log.info("%s: %s", release_of(package), what)
        with self._changed:
            before = self._failed.pop(package, None)
            self._under_way.discard(package)
            if found.record is None:
                tries = before.tries + 1 if before else 1
                pause = self._settings.first_pause_s * 2 ** min(tries - 1, 20)
                longest = _LONGEST_PAUSE_S
                until = time.monotonic() + (min(pause, longest) if found.transient else longest)
                self._failed[package] = _Failure(found.why, tries, until)
                if len(self._failed) > _MOST_FAILED:
                    self._failed.popitem(last=False)

    @cached_property
    def _sources(self) -> WheelSources:
        """Where wheels are read: redirects lead to public addresses, as those of registries."""
        transport = self._settings.transport
        return WheelSources(self._settings.indexes, others=False, transport=transport)

    @property
    def _options(self) -> MeasureOptions:
        toolkits = toolkits_of_ptx(self._toolkits) if self._toolkits else {}
        return MeasureOptions(toolkits=toolkits, cache=self._settings.cache)
