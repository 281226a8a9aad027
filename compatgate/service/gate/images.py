"""Read images that questions name, from registries that the operator allows.

Only registries on the operator's list are asked, so that a question cannot make the service
speak to hosts of the asker's choosing. An image elsewhere is a label, and the answer says
that it was not read.

A question waits for a reading no longer than the deadline. The reading goes on, so that the
next question finds it done: layers of gigabytes take minutes, once for each digest. Few images
are read at a time, each once.
"""

from __future__ import annotations

import copy
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from compatgate.catalog import read_source
from compatgate.core.facts import Facts
from compatgate.core.request import parse_request
from compatgate.discovery.image.read import read_image
from compatgate.discovery.image.reading import ImageReading
from compatgate.discovery.registry.limits import ImageOptions
from compatgate.discovery.registry.reference import Reference, parse_reference
from compatgate.discovery.stated_stack import prefer_shown
from compatgate.errors import BadInput, TimedOut, Unavailable
from compatgate.service.gate.deciding import CompletedQuestion, asked_target
from compatgate.service.gate.snapshot import Snapshot


class RegistryPlace(Struct, frozen=True):
    """A registry, or the repositories below a path in it.

    Attributes:
        host: as references write it, with its port; ``docker.io`` for Docker Hub.
        path: ``team``; empty: the whole registry.
    """

    host: str
    path: str = ""

    def __str__(self) -> str:
        return f"{self.host}/{self.path}" if self.path else self.host

    def holds(self, name: Reference) -> bool:
        """Return whether an image is there."""
        if name.registry != self.host:
            return False
        return not self.path or f"{name.repository}/".startswith(f"{self.path}/")


def allowed(name: Reference, places: Iterable[RegistryPlace]) -> bool:
    """Return whether an image is in one of the places."""
    return any(place.holds(name) for place in places)


def parse_places(texts: Sequence[str], field: str) -> tuple[RegistryPlace, ...]:
    """Read ``registry.example``, ``registry.example:5000/team``; several with commas.

    Args:
        texts: values of the option or variable.
        field: its name, for errors.

    Raises:
        BadInput: one is not ``HOST[:PORT][/PREFIX]``.
    """
    return tuple(dict.fromkeys(_parse(item, field) for item in _items(texts)))


def parse_indexes(texts: Sequence[str], field: str) -> tuple[str, ...]:
    """Read ``https://pypi.org/simple``; several with commas or spaces.

    Args:
        texts: values of the option or variable.
        field: its name, for errors.

    Raises:
        BadInput: one is no URL of an index; a password in it is not repeated.
    """
    found = []
    for item in _items(texts):
        try:
            parts = urlsplit(item)
            fits = parts.scheme in ("https", "http") and parts.hostname and parts.port != 0
        except ValueError:
            fits = False
        if not fits or parts.query or parts.fragment:
            shown = item.rpartition("@")[2][:200]
            hint = "like https://pypi.org/simple"
            raise BadInput("is not a URL of an index", field=field, value=shown, hint=hint)
        found.append(item.rstrip("/"))
    return tuple(dict.fromkeys(found))


def parse_networks(texts: Sequence[str], field: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """Read ``10.20.0.0/16``, ``fd00::/8`` or one address; several with commas.

    Args:
        texts: values of the option or variable.
        field: its name, for errors.

    Raises:
        BadInput: one is no network.
    """
    found = []
    for item in _items(texts):
        try:
            found.append(ip_network(item))
        except ValueError as error:
            hint = "like 10.20.0.0/16 or fd00::/8"
            raise BadInput(f"not a network: {error}", field=field, value=item, hint=hint) from None
    return tuple(dict.fromkeys(found))


def _items(texts: Sequence[str]) -> list[str]:
    return [item for text in texts for item in re.split(r"[,\s]+", text.strip()) if item]


def _parse(item: str, field: str) -> RegistryPlace:
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
        """Return the reading when it is over; begun here, as soon as few enough are under way."""
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


SETTING = "compatgate serve --registry (COMPATGATE_REGISTRIES)"
DEADLINE_S = 10.0
_NOT_YET = {"open": ["the image is yet to be read"]}
_PLATFORMS = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}


class ImageSettings(Struct, frozen=True):
    """What the operator lets the gate read.

    Attributes:
        registries: that may be asked; none: no image is read.
        deadline_s: seconds that a question waits for its image.
        at_once: images that are read at the same time.
        waiting: questions that may wait for an image at the same time; the other threads stay
            free for questions without one.
        options: mirrors, TLS, credentials and cache, as `read_image` takes them.
    """

    registries: tuple[RegistryPlace, ...] = ()
    deadline_s: float = DEADLINE_S
    at_once: int = 8
    waiting: int = 16
    options: ImageOptions = ImageOptions()


class Images:
    """Puts what an image shows into a question that names one.

    Args:
        settings: of the operator.
        overlays: the operator's fact files.
    """

    def __init__(self, settings: ImageSettings, overlays: Any = None) -> None:
        self._settings = settings
        hosts = frozenset(place.host for place in settings.registries)
        # Redirects and token services are the registry's choice: they lead to public addresses.
        options = replace(settings.options, registries=hosts, internal=False)
        self._readings = Readings(
            options, overlays, settings.deadline_s, settings.at_once, settings.waiting
        )

    def shown(
        self, body: Any, snapshot: Snapshot, wait_s: float | None = None
    ) -> CompletedQuestion:
        """Return a question with what its image shows.

        Args:
            body: of the question, as `compatgate.service.gate.deciding.decide` takes it.
            snapshot: knows the target, whose processor chooses from an index.
            wait_s: seconds to wait for the image, at most the operator's; None: those.

        Returns:
            The question as it was asked where it names no image; where the image is not to be
            read, with a remark that says so; else with the image's stack, which wins over what is
            stated, and with the digest that was read.

        Raises:
            BadInput: the question is malformed; or its image is not to be read, and no stack is
                stated.
            NotFound: there is no such target, or no such image.
            Unavailable: the registry does not answer, or refuses, or not in time.
            Damaged: the image is not what its digest says.
            TooLarge: it is a decompression bomb.
        """
        image = body.get("image") if isinstance(body, Mapping) else None
        if not isinstance(image, str) or not image:
            return CompletedQuestion(body)
        stated = body.get("stack")
        name, why = self._to_be_read(image, stated is not None)
        if name is None:
            noted = [*_remarks(stated), why]
            known = isinstance(stated, Mapping)
            return CompletedQuestion(
                {**body, "stack": {**stated, "unread": noted}} if known else body
            )
        # Whatever is wrong with the question is said before any registry is asked.
        request = parse_request(
            {**body, "stack": _NOT_YET if stated is None else stated}, snapshot.facts.gpus
        )
        cpus: set[str] = {pool.cpu for pool in asked_target(request, snapshot).pools}
        cpu = "aarch64" if cpus == {"aarch64"} else "x86_64"
        reading = self._readings.read(name, _PLATFORMS[cpu], snapshot.facts, wait_s)
        shown = _of_platform(reading, cpus)
        stack = prefer_shown(shown, stated or {}, "the image")
        body = {**body, "stack": stack, "image": reading.pinned}
        return CompletedQuestion(body, read=True, alone=stack == shown)

    def _to_be_read(self, image: str, stated: bool) -> tuple[Reference | None, str]:
        """Return the image, or None and why it is not to be read.

        Raises:
            BadInput: it is not to be read, and no stack is stated.
        """
        try:
            name = parse_reference(image)
        except BadInput:
            if not stated:
                raise
            return None, "the image was not read: its name is no reference to a registry"
        if allowed(name, self._settings.registries):
            return name, ""
        where = f"images of {name.registry} are not read here"
        if stated:
            return None, f"the image was not read, the stack is as stated: {where}"
        names = ", ".join(map(str, self._settings.registries)) or "none"
        hint = f"the operator allows registries with {SETTING}, now {names}; or state the stack"
        raise BadInput(where, field="image", value=image, hint=hint)


def _remarks(stated: Any) -> list[str]:
    before = stated.get("unread") if isinstance(stated, Mapping) else None
    return before if isinstance(before, list) else []


def _of_platform(reading: ImageReading, cpus: set[str]) -> dict[str, Any]:
    """What an image shows; of an index, one image stands for one kind of processor only."""
    shown = reading.to_request()
    if reading.index and len(cpus) > 1:
        what = f"the image of {reading.platform} was read, the target has pools of {sorted(cpus)}"
        shown["open"] = [*shown.get("open", ()), f"{what}: ask for each pool"]
    return shown
