"""Measure wheels of packages without a record, in the background.

The gate asks only indexes and places on the operator's list. A question never waits for a wheel:
the package stays open, the gate measures its wheel, and a later question uses the record. Records
are stored by digest in the folder of `default_folder`, where every worker and every later start
finds them. A replica on another machine measures for itself.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct

from compatgate.core.facts import Facts
from compatgate.core.facts.nvidia import CudaArch
from compatgate.core.facts.records import Record, WheelPlaces
from compatgate.core.package_finder import OpenPackage, open_packages, release_of
from compatgate.core.rule import Verdict
from compatgate.core.rules.packages import package_open
from compatgate.core.stack import parse_stack
from compatgate.discovery.registry.limits import ImageOptions
from compatgate.discovery.wheels.measure import MeasureOptions, list_ptx_toolkits
from compatgate.discovery.wheels.on_demand import (
    MeasureResult,
    WheelSources,
    build_request,
    explain_failure,
    find_or_measure_package,
    find_record,
)
from compatgate.errors import CompatgateError

_FIRST_PAUSE_S = 30.0
_LONGEST_PAUSE_S = 3600.0
_MAX_FAILURES = 1024
_MEASURING_TEXT = "its wheel is being measured: ask again"
_QUEUE_FULL_TEXT = "other wheels are being measured: ask again later"
_log = logging.getLogger("compatgate.gate")


class WheelSettings(Struct, frozen=True):
    """Settings of the operator for measuring wheels, from indexes in order, or places.

    Without a cache records are neither read nor stored. The pause before a retry doubles each time.
    """

    indexes: tuple[str, ...] = ()
    places: frozenset[str] = frozenset()
    cache: str | None = None
    at_once: int = 2
    waiting: int = 64
    transport: ImageOptions = ImageOptions()
    first_pause_s: float = _FIRST_PAUSE_S

    @property
    def measures(self) -> bool:
        """Tell whether anything may be asked for a wheel."""
        return bool(self.indexes or self.places)


class WheelRecords(Struct, frozen=True):
    """Records of the open packages of a verdict, or why there is none, by release."""

    records: tuple[Record, ...] = ()
    why: Mapping[str, str] = {}


class _Failure(Struct):
    """A package that could not be measured; ``until`` is the time of the next try."""

    why: str
    tries: int
    until: float


class WheelMeasurer:
    """A background measurer of wheels; any number of threads may use it."""

    def __init__(self, settings: WheelSettings, know: Callable[[Iterable[Record]], object]) -> None:
        self._settings = settings
        self._know = know
        self._changed = threading.Condition()
        self._under_way: set[OpenPackage] = set()
        self._waiting: deque[OpenPackage] = deque()
        self._failed: OrderedDict[OpenPackage, _Failure] = OrderedDict()
        self._threads = 0
        self._toolkits: CudaArch | None = None
        self._places: WheelPlaces | None = None

    def missing(self, verdict: Verdict, facts: Facts) -> tuple[OpenPackage, ...]:
        """Return the packages of a verdict without a record; most verdicts have none."""
        if not any(finding.rule == package_open.id for finding in verdict.findings):
            return ()
        platforms = [(pool["os"], pool["cpu"]) for pool in verdict.pools]
        return open_packages(parse_stack(verdict.stack), platforms, facts)

    def ask(self, missing: Iterable[OpenPackage], facts: Facts) -> WheelRecords:
        """Return known records, and queue the other packages; never waits for the network."""
        self._toolkits = facts.arch
        self._places = facts.wheel_places if self._settings.places else None
        records: list[Record] = []
        why: dict[str, str] = {}
        for package in missing:
            found = self._state(package)
            if isinstance(found, Record) and found not in facts.records(package.name):
                records.append(found)
            elif isinstance(found, Record):
                why[release_of(package)] = f"{found.wheel} was measured but is another build"
            else:
                why[release_of(package)] = found
        return WheelRecords(tuple(records), why)

    def add_reasons(self, body: Mapping[str, Any], found: WheelRecords) -> Mapping[str, Any]:
        """Return the question with the reasons for missing records in its stack."""
        if not found.why:
            return body
        stack = body["stack"]
        before = stack.get("unmeasured")
        why = {**(before if isinstance(before, Mapping) else {}), **found.why}
        return {**body, "stack": {**stack, "unmeasured": why}}

    def _state(self, package: OpenPackage) -> Record | str:
        try:
            known = find_record(build_request(package), self._sources, self._options, aged=False)
        except CompatgateError as error:
            return explain_failure(error, build_request(package))
        except ValueError:  # the version cannot exist on an index
            known = None
        if known:
            return known
        with self._changed:
            failure = self._failed.get(package)
            if failure and package not in self._under_way and time.monotonic() < failure.until:
                return failure.why
            return self._begin(package)

    def _begin(self, package: OpenPackage) -> str:
        """Queue a package; the caller holds the lock since it looked for a failure."""
        if package in self._under_way:
            if not self._threads:
                self._start_thread()
            return _MEASURING_TEXT
        if len(self._waiting) >= self._settings.waiting:
            return _QUEUE_FULL_TEXT
        self._under_way.add(package)
        self._waiting.append(package)
        if self._threads < self._settings.at_once:
            self._start_thread()
        return _MEASURING_TEXT

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._work, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # another thread takes the queue, or a later question starts one
            return
        self._threads += 1

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    self._threads -= 1
                    return
                package = self._waiting.popleft()
            found = find_or_measure_package(build_request(package), self._sources, self._options)
            try:
                if found.record is not None:
                    self._know([found.record])
            except Exception:  # the thread must go on: other packages wait
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
                if len(self._failed) > _MAX_FAILURES:
                    self._failed.popitem(last=False)

    @property
    def _sources(self) -> WheelSources:
        """Return the indexes and places; redirects must lead to public addresses, as for images."""
        settings = self._settings
        return WheelSources(
            settings.indexes,
            others=False,
            places=self._places if settings.places else None,
            allowed=settings.places,
            transport=settings.transport,
        )

    @property
    def _options(self) -> MeasureOptions:
        toolkits = list_ptx_toolkits(self._toolkits) if self._toolkits else {}
        return MeasureOptions(toolkits=toolkits, cache=self._settings.cache)
