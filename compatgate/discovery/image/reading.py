"""Represent the result of reading an image, and find earlier results in the cache.

This module imports no registry client: code that only shows readings stays light.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, pairwise
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from compatgate import version
from compatgate.core.components import MAX_STACKS
from compatgate.discovery import cache
from compatgate.discovery.observations import Conflict, Observation
from compatgate.discovery.registry.image_spec import Platform
from compatgate.discovery.registry.limits import ImageOptions
from compatgate.discovery.stated_stack import attach_remarks

INTERPRETER = re.compile(r"python(?:\d(?:\.\d{1,2})?)?t?")
"""Name of a Python interpreter."""
_DIGEST = re.compile(r"@sha(?:256|512):[0-9a-f]+$")


def goes_back(path: str) -> bool:
    """Return whether a path leaves a folder that it names: where it leads depends on links."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return any(two == ".." != one for one, two in pairwise(parts))


class Interpreters(Struct, frozen=True):
    """The interpreters of an image and its ``PATH``, with ``""`` for a folder that is not known."""

    installations: dict[str, str] = {}
    path: tuple[str, ...] = ()
    command: tuple[str, ...] = ()

    def find(self, command: Sequence[str] | None) -> str | None:
        """Return the installation that a command names; None where it names none.

        ``command`` runs in place of the image's own command; None means that one.
        """
        words = self.command if command is None else command
        program = words[0] if words else ""
        if goes_back(program):
            return None
        if program.startswith("/"):
            return self.installations.get(posixpath.normpath(program).lstrip("/"))
        if not INTERPRETER.fullmatch(program):
            return None
        for folder in self.path:
            place = f"{folder}/{program}"
            if not folder or place in self.installations:
                return self.installations.get(place)
        return None


class ImageReading(Struct, frozen=True):
    """The stack of an image.

    The ``digest`` is of the manifest that was read, for an index of the platform's, and empty for a
    root filesystem in a file; ``index`` that of the index, if one was. ``bytes_read`` counts this
    call alone: 0 for cached readings. ``installations`` are those whose stacks differ, that of
    ``stack_body`` first. ``content`` is the digest of the GPU content (`layer_findings`), None
    where the image was not read to the end; ``files`` are digests of some of it, by path, which a
    program in the image can be asked for.
    """

    reference: str
    digest: str
    platform: str
    stack_body: dict[str, Any]
    observations: tuple[Observation, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    open: tuple[str, ...] = ()
    bytes_read: int = 0
    index: str | None = None
    layers: int = 0
    layers_read: int = 0
    content: str | None = None
    files: dict[str, str] = {}
    installations: tuple[str, ...] = ()
    interpreters: Interpreters = Interpreters()

    @property
    def pinned(self) -> str:
        """Return the reference with the manifest's digest, not an index's; a file may have none."""
        name = _DIGEST.sub("", self.reference)
        return f"{name}@{self.digest}" if self.digest else self.reference

    def to_request(self, command: Sequence[str] | None = None) -> dict[str, Any]:
        """Return the stack in the form of requests, with open questions and conflicts.

        ``command`` as in `Interpreters.find`, empty where it is not known: the installation that it
        names counts alone.
        """
        body = self.to_whole_request()
        others = dict(body.pop("alternatives", {}))
        name = self.interpreters.find(command)
        if name in self.installations:
            if chosen := others.get(name):
                left = [*body.get("open", ()), *chosen.get("open", ())]
                kept = {key: body[key] for key in ("content",) if key in body}
                body = {**chosen, **kept, **({"open": left} if left else {})}
            others = {n: one for n, one in others.items() if n not in self.installations}
        if not others:
            return body
        own = (*self.installations, f"{self.platform} {self.digest[:19]}")[0]
        note = f"the stack is that of {own}; also judged, the worst counts: {', '.join(others)}"
        return {**body, "unread": [*body.get("unread", ()), note], "alternatives": others}

    def find_hidden(self, mounts: Iterable[str]) -> Iterator[str]:
        """Yield a sentence for each volume that covers what the stack was read from."""
        origins = (one.origin.split(": ")[1:2] for one in self.observations)
        read = [*chain.from_iterable(origins), *self.interpreters.installations]
        for mount in mounts:
            folder = posixpath.normpath(f"/{mount}").strip("/")
            start = f"{folder}/" if folder else ""
            if covered := next((one for one in read if f"{one}/".startswith(start)), None):
                yield f"a volume is mounted at {mount}, over /{covered}, and was not read"

    def to_whole_request(self) -> dict[str, Any]:
        """Return the stack as `to_request`, with every installation."""
        body = attach_remarks(self.stack_body, self.open, self.conflicts)
        return {**body, "content": self.content} if self.content else body

    def to_json(self) -> dict[str, Any]:
        """Return ``{"stack", "observations", "conflicts", "open", "image"}``."""
        return {
            "stack": self.stack_body,
            "observations": msgspec.to_builtins([*self.observations]),
            "conflicts": msgspec.to_builtins([*self.conflicts]),
            "open": list(self.open),
            "image": {
                "reference": self.reference,
                "digest": self.digest,
                "index": self.index,
                "platform": self.platform,
                "layers": self.layers,
                "layers_read": self.layers_read,
                "bytes_read": self.bytes_read,
                "content": self.content,
            },
        }


def join_readings(readings: Sequence[ImageReading], doubts: Sequence[str] = ()) -> ImageReading:
    """Return one reading of the images that a runtime may choose, the preferred one first."""
    main = readings[0]
    request = main.to_whole_request()
    others = dict(request.pop("alternatives", {}))
    for reading in readings[1:]:
        other = reading.to_whole_request()
        nested = other.pop("alternatives", {})
        if other == request and not nested:
            continue
        name = f"{reading.platform} {reading.digest[:19]}"
        others |= {name: other, **{f"{name} {inner}": one for inner, one in nested.items()}}
    stack = {name: value for name, value in main.stack_body.items() if name != "alternatives"}
    if len(others) > MAX_STACKS:
        doubts = (*doubts, f"{len(others) - MAX_STACKS} more stacks of the image are not judged")
    if others:
        stack["alternatives"] = dict(list(others.items())[:MAX_STACKS])
    return replace(main, stack_body=stack, open=(*main.open, *doubts))


_READING_FORM = "packages/5"
"""Version of the cached form; raise it when `ImageReading` changes."""


class ReadingCache:
    """A cache of readings for one platform and one set of options."""

    def __init__(
        self, options: ImageOptions, platform: Platform, signals: Mapping[str, Any]
    ) -> None:
        self._options = options
        self._platform = platform
        self._signals = signals

    def find(self, digest: str | None) -> ImageReading | None:
        """Return the reading of an image or index; one of all layers answers every question."""
        if not digest or not self._options.cache:
            return None
        for needs in dict.fromkeys(((), tuple(sorted(self._options.needs)))):
            key = self._key(digest, needs)
            if reading := cache.read_struct(self._options.cache, key, ImageReading):
                return reading
        return None

    def keep(self, reading: ImageReading) -> None:
        """Store a reading whose every byte was verified."""
        if self._options.cache:
            name = self._key(reading.digest, tuple(sorted(self._options.needs)))
            cache.write_entry(self._options.cache, name, reading)

    def keep_index(self, reading: ImageReading) -> None:
        """Store the image that an index leads to, if that image's reading is stored."""
        if self._options.cache and reading.index and self.find(reading.digest):
            name = self._key(reading.index, tuple(sorted(self._options.needs)))
            if cache.read_struct(self._options.cache, name, dict[str, Any]) is None:
                cache.write_entry(self._options.cache, name, reading)

    @cached_property
    def _common(self) -> dict[str, Any]:
        return {
            "version": version(),
            "platform": str(self._platform),
            "signals": cache.entry_key("", self._signals),
            "layers": self._options.layers,
            "facts": hashlib.sha256(repr(self._options.arch_facts).encode()).hexdigest(),
            "packages": hashlib.sha256(repr(self._options.packages).encode()).hexdigest(),
            "form": _READING_FORM,
        }

    def _key(self, digest: str, needs: tuple[str, ...]) -> str:
        return cache.entry_key(digest, {**self._common, "needs": needs})
