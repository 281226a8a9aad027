"""Hold the result of reading an image, and find earlier results that answer the same question.

Loads no client for registries: who only names or shows readings imports this alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import msgspec
from msgspec import Struct

from compatgate import __version__
from compatgate.discovery import cache
from compatgate.discovery.observations import Conflict, Observation
from compatgate.discovery.registry.limits import ImageOptions
from compatgate.discovery.registry.manifest import Platform
from compatgate.discovery.stated_stack import attach_remarks


class ImageReading(Struct, frozen=True):
    """What an image holds.

    Attributes:
        reference: as it was asked for, in full.
        digest: of the manifest that was read: of an index, the one for the platform.
        index: digest of the index that the manifest was chosen from, None without.
        platform: of the image, ``linux/amd64``.
        stack_body: the stack in the form of requests.
        observations: each with the variable, label, or layer and file where it was seen.
        conflicts: where they disagree, and which decides.
        open: what could not be read or was left out, in sentences.
        bytes_read: from the registry, for this call; 0 for manifest, config and layers that are
            known from before.
        layers: how many the image has.
        layers_read: how many of them were read.
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

    @property
    def pinned(self) -> str:
        """Return the reference with a digest: a tag may be another image tomorrow."""
        return self.reference if "@" in self.reference else f"{self.reference}@{self.digest}"

    def to_request(self) -> dict[str, Any]:
        """The stack in the form of requests, with what is open and where witnesses disagree."""
        return attach_remarks(self.stack_body, self.open, self.conflicts)

    def to_json(self) -> dict[str, Any]:
        """``{"stack", "observations", "conflicts", "open", "image"}``."""
        return {
            "stack": self.stack_body,
            "observations": [o.to_json() for o in self.observations],
            "conflicts": [c.to_json() for c in self.conflicts],
            "open": list(self.open),
            "image": {
                "reference": self.reference,
                "digest": self.digest,
                "index": self.index,
                "platform": self.platform,
                "layers": self.layers,
                "layers_read": self.layers_read,
                "bytes_read": self.bytes_read,
            },
        }


def encode_reading(reading: ImageReading) -> dict[str, Any]:
    """Return the reading in the form that is kept."""
    document: dict[str, Any] = msgspec.to_builtins(reading)
    return document


def decode_reading(document: dict[str, Any]) -> ImageReading | None:
    """Return a reading that was kept; None where it is of another form."""
    try:
        return msgspec.convert(document, ImageReading)
    except msgspec.ValidationError:
        return None


_READING_FORM = "packages/1"
"""Grows with what a reading holds."""


class ReadingCache:
    """Earlier readings, for one platform and one set of options.

    Args:
        options: with the folder; without one nothing is found or kept.
        platform: that is asked for; it chooses from an index.
        signals: that readings depend on.
    """

    def __init__(
        self, options: ImageOptions, platform: Platform, signals: Mapping[str, Any]
    ) -> None:
        self._options = options
        self._platform = platform
        self._signals = signals

    def find(self, digest: str | None) -> ImageReading | None:
        """Return the reading of an image or index; one of everything answers every question."""
        if not digest or not self._options.cache:
            return None
        for needs in dict.fromkeys(((), tuple(sorted(self._options.needs)))):
            document = cache.read_entry(self._options.cache, self._key(digest, needs))
            if document is not None and (found := decode_reading(document)):
                return found
        return None

    def keep(self, reading: ImageReading) -> None:
        """Keep a reading whose every byte was verified."""
        if self._options.cache:
            name = self._key(reading.digest, tuple(sorted(self._options.needs)))
            cache.write_entry(self._options.cache, name, encode_reading(reading))

    def keep_index(self, reading: ImageReading) -> None:
        """Remember which image an index leads to, where that image's reading is kept."""
        if self._options.cache and reading.index and self.find(reading.digest):
            name = self._key(reading.index, tuple(sorted(self._options.needs)))
            if cache.read_entry(self._options.cache, name) is None:
                cache.write_entry(self._options.cache, name, encode_reading(reading))

    @cached_property
    def _common(self) -> dict[str, Any]:
        """Everything but the digest and the needs that a reading depends on."""
        return {
            "version": __version__,
            "platform": str(self._platform),
            "signals": cache.entry_key("", self._signals),
            "layers": self._options.layers,
            "facts": hashlib.sha256(repr(self._options.arch_facts).encode()).hexdigest(),
            "packages": hashlib.sha256(repr(self._options.packages).encode()).hexdigest(),
            "form": _READING_FORM,
        }

    def _key(self, digest: str, needs: tuple[str, ...]) -> str:
        return cache.entry_key(digest, {**self._common, "needs": needs})
