"""Read images that questions name, from registries that the operator allows.

The gate asks only registries on the operator's list, so that a client cannot choose hosts for the
service to contact. Any other image is a label, and the answer says that it was not read.

A question waits for its image no longer than the deadline. The reading continues, so that a later
question finds the result: layers of gigabytes take minutes, once for each digest. The gate reads
few images at a time, each once.
"""

from __future__ import annotations

import copy
import re
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from compatgate.catalog import read_source
from compatgate.core.facts import Facts
from compatgate.core.performance import MIB, BoundedCache
from compatgate.core.request import parse_request
from compatgate.discovery.image.read import read_image
from compatgate.discovery.image.reading import ImageReading
from compatgate.discovery.registry.image_spec import Reference, parse_reference
from compatgate.discovery.registry.limits import ImageOptions
from compatgate.discovery.stated_stack import prefer_detected
from compatgate.errors import BadInput, RegistryTimeout, Unavailable, quote_error
from compatgate.kit import tracing
from compatgate.service.gate.questions.decider import CompletedQuestion, resolve_target
from compatgate.service.matrix.snapshots.snapshot import Snapshot


class RegistryPlace(Struct, frozen=True):
    """A registry as references write it (``docker.io`` for Docker Hub), or a path in it."""

    host: str
    path: str = ""

    def __str__(self) -> str:
        return f"{self.host}/{self.path}" if self.path else self.host

    def holds(self, name: Reference) -> bool:
        """Tell whether an image is in this place."""
        if name.registry != self.host:
            return False
        return not self.path or f"{name.repository}/".startswith(f"{self.path}/")


def is_allowed(name: Reference, places: Iterable[RegistryPlace]) -> bool:
    """Tell whether an image is in one of the places."""
    return any(place.holds(name) for place in places)


def parse_places(texts: Sequence[str], field: str) -> tuple[RegistryPlace, ...]:
    """Parse places like ``registry.example`` and ``registry.example:5000/team``."""
    return tuple(dict.fromkeys(_parse_place(item, field) for item in _split_items(texts)))


def parse_indexes(texts: Sequence[str], field: str) -> tuple[str, ...]:
    """Parse index URLs like ``https://pypi.org/simple``; an error leaves out a password."""
    found = []
    for item in _split_items(texts):
        try:
            parts = urlsplit(item)
            fits = parts.scheme in ("https", "http") and parts.hostname and parts.port != 0
        except ValueError:
            fits = False
        if not fits or parts.query or parts.fragment:
            shown = item.rpartition("@")[2][:200]
            hint = "like https://pypi.org/simple"
            raise BadInput("is not an index URL", field=field, value=shown, hint=hint)
        found.append(item.rstrip("/"))
    return tuple(dict.fromkeys(found))


def parse_names(texts: Sequence[str], field: str) -> tuple[str, ...]:
    """Parse names, separated by commas or blanks."""
    del field  # every text is a name
    return tuple(dict.fromkeys(_split_items(texts)))


def parse_networks(texts: Sequence[str], field: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """Parse networks like ``10.20.0.0/16`` and ``fd00::/8``, or addresses."""
    found = []
    for item in _split_items(texts):
        try:
            found.append(ip_network(item))
        except ValueError as error:
            what, hint = f"not a network: {quote_error(error)}", "like 10.20.0.0/16 or fd00::/8"
            raise BadInput(what, field=field, value=item, hint=hint) from None
    return tuple(dict.fromkeys(found))


def _split_items(texts: Sequence[str]) -> list[str]:
    return [item for text in texts for item in re.split(r"[,\s]+", text.strip()) if item]


def _parse_place(item: str, field: str) -> RegistryPlace:
    host, _, path = item.rstrip("/").partition("/")
    wrong = not re.search(r"[.:]|^localhost$", host)
    try:
        name = parse_reference(f"{host}/{path}/x:1" if path else f"{host}/x/x:1")
    except BadInput:
        wrong = True
    if wrong:
        hint = "HOST[:PORT][/PREFIX], like registry.example or registry.example:5000/team"
        raise BadInput(f"{item!r} is not a registry", field=field, value=item, hint=hint)
    return RegistryPlace(name.registry, path)


LONGEST_READING_S = 900.0
"""Longest reading in seconds, also if no question waits for it."""
_MAX_KNOWN_READINGS = 512
_KNOWN_BYTES = 64 * MIB
_READING_RATIO = 4
"""Ratio of a reading's size in memory to that of its JSON."""
_RESERVED_READINGS = 2
"""Readings that one registry alone cannot use up."""
ReadingKey = tuple[str, str]
"""Reference and platform."""


class _RunningReading:
    """A running reading; any number of questions wait for it."""

    def __init__(self, registry: str) -> None:
        self.registry = registry
        self.reading: ImageReading | None = None
        self.error: BaseException | None = None
        self.over = False


class ImageReader:
    """A background reader of images."""

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
        self._flights: dict[ReadingKey, _RunningReading] = {}
        self._known: BoundedCache[ReadingKey, ImageReading] = BoundedCache(
            _KNOWN_BYTES, _MAX_KNOWN_READINGS
        )

    def read(
        self, name: Reference, platform: str, facts: Facts, wait_s: float | None = None
    ) -> ImageReading:
        """Return the content of an image.

        A tag is resolved each time; earlier readings of a digest come from memory or disk.
        """
        key = (str(name), platform)
        wait_s = self._deadline_s if wait_s is None else min(wait_s, self._deadline_s)
        with self._changed:
            if name.digest and (known := self._known.get(key)):
                return known
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
        assert flight.reading is not None  # noqa: S101 - ended without error
        return flight.reading

    def _wait(
        self, key: ReadingKey, name: Reference, facts: Facts, wait_s: float
    ) -> _RunningReading:
        """Wait for the reading, and start it once there is room."""
        end = time.monotonic() + wait_s
        flight: _RunningReading | None = None
        while flight is None or not flight.over:
            flight = flight or self._flights.get(key)
            if flight is None:
                # One slow registry must not block the others.
                same = sum(one.registry == name.registry for one in self._flights.values())
                most = max(1, self._at_once - _RESERVED_READINGS)
                if len(self._flights) < self._at_once and same < most:
                    flight = self._begin(key, name, facts)
            left = end - time.monotonic()
            if left <= 0:
                raise self._timeout(name, wait_s, begun=flight is not None)
            self._changed.wait(left)
        return flight

    def _begin(self, key: ReadingKey, name: Reference, facts: Facts) -> _RunningReading:
        flight = _RunningReading(name.registry)
        read = tracing.carry(self._read)
        thread = threading.Thread(target=read, args=(flight, key, name, facts), daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system has no threads left
            raise Unavailable("no image can be read now", field="image", hint="ask again") from None
        self._flights[key] = flight
        return flight

    def _read(
        self, flight: _RunningReading, key: ReadingKey, name: Reference, facts: Facts
    ) -> None:
        try:
            with tracing.span("image.read", {"compatgate.image": str(name)}, kind="client"):
                flight.reading = read_image(
                    str(name),
                    signals=self._signals,
                    platform=key[1],
                    deadline_s=LONGEST_READING_S,
                    options=replace(self._options, arch_facts=facts.arch, packages=facts.packages),
                )
        except BaseException as error:  # raised by the waiting questions
            flight.error = error
        with self._changed:
            flight.over = True
            del self._flights[key]
            if flight.reading and name.digest:
                size = _READING_RATIO * len(msgspec.json.encode(flight.reading.to_json()))
                self._known.put(key, flight.reading, size)
            self._changed.notify_all()

    @cached_property
    def _signals(self) -> dict[str, Any]:
        return read_source("image_signals", self._overlays)

    def _timeout(self, name: Reference, wait_s: float, *, begun: bool) -> RegistryTimeout:
        what = "reading" if begun else f"{self._at_once} other images are being read; reading"
        what = f"{what} {name} took longer than {wait_s:.3g} seconds"
        hint = "the gate continues to read the image; ask again, or set a longer serve"
        return RegistryTimeout(what, field="image", hint=f"{hint} --image-deadline")


SETTING = "compatgate serve --registry (COMPATGATE_REGISTRIES)"
DEADLINE_S = 10.0
_UNREAD_STACK = {"open": ["the image is yet to be read"]}
_PLATFORMS = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}


class ImageSettings(Struct, frozen=True):
    """Settings of the operator for reading images; without registries none is read.

    So many questions may wait for images: other threads stay free for questions without an image.
    """

    registries: tuple[RegistryPlace, ...] = ()
    deadline_s: float = DEADLINE_S
    at_once: int = 8
    waiting: int = 16
    options: ImageOptions = ImageOptions()


class Images:
    """Completes questions from the images that they name."""

    def __init__(self, settings: ImageSettings, overlays: Any = None) -> None:
        self._settings = settings
        hosts = frozenset(place.host for place in settings.registries)
        # Redirects and token services are the registry's choice: they lead to public addresses.
        options = replace(settings.options, registries=hosts, internal=False)
        self._readings = ImageReader(
            options, overlays, settings.deadline_s, settings.at_once, settings.waiting
        )

    def complete(
        self, body: Any, snapshot: Snapshot, wait_s: float | None = None
    ) -> CompletedQuestion:
        """Return a question completed with the stack of its image.

        Without an image, the question as asked. With an image that must not be read, the question
        with a remark. Else the question with the image's stack, which wins over the stated one, and
        with the digest. It waits ``wait_s`` at most, and never longer than the operator's deadline.
        """
        image = body.get("image") if isinstance(body, Mapping) else None
        if not isinstance(image, str) or not image:
            return CompletedQuestion(body)
        stated = body.get("stack")
        name, why = self._allowed_image(image, stated is not None)
        if name is None:
            before = stated.get("unread") if isinstance(stated, Mapping) else None
            noted = [*(before if isinstance(before, list) else []), why]
            known = isinstance(stated, Mapping)
            return CompletedQuestion(
                {**body, "stack": {**stated, "unread": noted}} if known else body
            )
        # Reject a malformed question before contacting a registry.
        request = parse_request(
            {**body, "stack": _UNREAD_STACK if stated is None else stated}, snapshot.facts.gpus
        )
        cpus: set[str] = {pool.cpu for pool in resolve_target(request, snapshot).pools}
        cpu = "aarch64" if cpus == {"aarch64"} else "x86_64"
        reading = self._readings.read(name, _PLATFORMS[cpu], snapshot.facts, wait_s)
        shown = _stack_of_reading(reading, cpus, body.get("command"))
        if hidden := list(reading.find_hidden(body.get("mounts") or ())):
            shown["open"] = [*shown.get("open", ()), *hidden]
        stack = prefer_detected(shown, stated or {})
        body = {**body, "stack": stack, "image": reading.pinned}
        # An image is signed whatever runs in it: all its installations, not the one of a command.
        whole = _stack_of_reading(reading, cpus, ())
        return CompletedQuestion(body, read=True, alone=stack == whole)

    def reads(self, body: Mapping[str, Any]) -> bool:
        """Return whether `complete` would read the image of a question."""
        image = body.get("image")
        if not isinstance(image, str) or not image:
            return False
        try:
            return self._allowed_image(image, body.get("stack") is not None)[0] is not None
        except BadInput:
            return False

    def _allowed_image(self, image: str, stated: bool) -> tuple[Reference | None, str]:
        """Return the image, or None and why the gate must not read it."""
        try:
            name = parse_reference(image)
        except BadInput:
            if not stated:
                raise
            return None, "the image was not read: its name is no reference to a registry"
        if is_allowed(name, self._settings.registries):
            return name, ""
        where = f"images of {name.registry} are not read here"
        if stated:
            return None, f"the image was not read, the stack is as stated: {where}"
        names = ", ".join(map(str, self._settings.registries)) or "none"
        hint = f"the operator allows registries with {SETTING}, now {names}; or state the stack"
        raise BadInput(where, field="image", value=image, hint=hint)


def _stack_of_reading(
    reading: ImageReading, cpus: set[str], command: Sequence[str] | None
) -> dict[str, Any]:
    """Return the stack of an image; an image of an index covers one kind of CPU."""
    shown = reading.to_request(command)
    if reading.index and len(cpus) > 1:
        what = f"the image of {reading.platform} was read, the target has pools of {sorted(cpus)}"
        shown["open"] = [*shown.get("open", ()), f"{what}: check each pool by itself"]
    return shown
