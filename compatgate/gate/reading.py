"""Readings of images for many questions: few at a time, each once, and nobody waits for ever."""

from __future__ import annotations

import copy
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from msgspec.structs import replace

from compatgate.catalog import read_source
from compatgate.core.facts import Facts
from compatgate.discovery.image import ImageOptions, ImageReading, Reference, read_image
from compatgate.errors import TimedOut, Unavailable

LONGEST_S = 900.0
"""Seconds that a reading may take, whoever still waits for it."""
_REMEMBERED = 512
_KEPT_FREE = 2
"""Places for readings from other registries than the one that has most."""

Key = tuple[str, str]
"""Reference and platform."""


class _Flight:
    """A reading that is under way; any number of questions wait for it."""

    def __init__(self, registry: str) -> None:
        self.registry = registry
        self.reading: ImageReading | None = None
        self.error: BaseException | None = None
        self.over = False


class Readings:
    """Reads images, in threads of its own.

    Args:
        options: as `read_image`.
        overlays: the operator's fact files.
        deadline_s: seconds that a question waits.
        at_once: images that are read at the same time.
        waiting: questions that may wait at the same time.
    """

    def __init__(
        self,
        options: ImageOptions,
        overlays: Sequence[str] | None,
        deadline_s: float,
        at_once: int,
        waiting: int,
    ) -> None:
        self._options = options
        self._overlays = overlays
        self._deadline_s = deadline_s
        self._at_once = at_once
        self._most_waiting = waiting
        self._waiting = 0
        self._changed = threading.Condition()
        self._flights: dict[Key, _Flight] = {}
        self._known: OrderedDict[Key, ImageReading] = OrderedDict()

    def read(
        self, name: Reference, platform: str, facts: Facts, wait_s: float | None = None
    ) -> ImageReading:
        """What an image holds.

        A tag is resolved each time; a digest that was read before is known, here or on disk.

        Args:
            name: of the image; its registry may be asked.
            platform: which image of an index is meant.
            facts: where code runs, and which packages matter.
            wait_s: seconds to wait, where that is less than the deadline.

        Raises:
            CompatgateError: as `read_image`; TimedOut while it is still being read.
        """
        key = (str(name), platform)
        wait_s = self._deadline_s if wait_s is None else min(wait_s, self._deadline_s)
        with self._changed:
            if name.digest and key in self._known:
                self._known.move_to_end(key)
                return self._known[key]
            if self._waiting >= self._most_waiting:
                what = f"{self._waiting} questions are waiting for images"
                raise Unavailable(what, field="image", hint="ask again, or state the stack")
            self._waiting += 1
            try:
                flight = self._wait(key, name, facts, wait_s)
            finally:
                self._waiting -= 1
        if flight.error is not None:
            raise copy.copy(flight.error)
        assert flight.reading is not None  # noqa: S101 - it is over, and was no error
        return flight.reading

    def _wait(self, key: Key, name: Reference, facts: Facts, wait_s: float) -> _Flight:
        """The reading when it is over; begun here, as soon as few enough are under way."""
        end = time.monotonic() + wait_s
        flight: _Flight | None = None
        while flight is None or not flight.over:
            flight = flight or self._flights.get(key)
            if flight is None and self._has_room(name):
                flight = self._begin(key, name, facts)
            left = end - time.monotonic()
            if left <= 0:
                raise self._late(name, wait_s, begun=flight is not None)
            self._changed.wait(left)
        return flight

    def _has_room(self, name: Reference) -> bool:
        """Whether another reading may begin; one slow registry does not take all the places."""
        same = sum(flight.registry == name.registry for flight in self._flights.values())
        most = max(1, self._at_once - _KEPT_FREE)
        return len(self._flights) < self._at_once and same < most

    def _begin(self, key: Key, name: Reference, facts: Facts) -> _Flight:
        flight = _Flight(name.registry)
        thread = threading.Thread(target=self._fly, args=(flight, key, name, facts), daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system has no threads left
            raise Unavailable("no image can be read now", field="image", hint="ask again") from None
        self._flights[key] = flight
        return flight

    def _fly(self, flight: _Flight, key: Key, name: Reference, facts: Facts) -> None:
        try:
            flight.reading = read_image(
                str(name),
                signals=self._signals,
                platform=key[1],
                deadline_s=LONGEST_S,
                options=replace(self._options, arch_facts=facts.arch, packages=facts.packages),
            )
        except BaseException as error:  # raised again by those who wait
            flight.error = error
        with self._changed:
            flight.over = True
            del self._flights[key]
            if flight.reading and name.digest:
                self._known[key] = flight.reading
                if len(self._known) > _REMEMBERED:
                    self._known.popitem(last=False)
            self._changed.notify_all()

    @cached_property
    def _signals(self) -> dict[str, Any]:
        return read_source("image_signals", self._overlays)

    def _late(self, name: Reference, wait_s: float, *, begun: bool) -> TimedOut:
        what = "reading" if begun else f"{self._at_once} others are being read; reading"
        return TimedOut(
            f"{what} {name} took longer than the {wait_s:.3g} seconds that were allowed",
            field="image",
            hint="it goes on being read: ask again; or serve with a longer --image-deadline",
        )
