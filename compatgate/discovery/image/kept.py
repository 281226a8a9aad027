"""Which earlier readings answer a question, and which are worth keeping."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from compatgate import __version__
from compatgate.discovery.image import cache
from compatgate.discovery.image.manifest import Platform
from compatgate.discovery.image.options import ImageOptions
from compatgate.discovery.image.reading import ImageReading, restored, stored

_FORM = "packages/1"
"""Grows with what a reading holds."""


class Kept:
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
        """The reading of an image or index; one of everything answers every question."""
        if not digest or not self._options.cache:
            return None
        for needs in dict.fromkeys(((), tuple(sorted(self._options.needs)))):
            document = cache.find(self._options.cache, self._key(digest, needs))
            if document is not None and (found := restored(document)):
                return found
        return None

    def keep(self, reading: ImageReading) -> None:
        """Keep a reading whose every byte was verified."""
        if self._options.cache:
            name = self._key(reading.digest, tuple(sorted(self._options.needs)))
            cache.keep(self._options.cache, name, stored(reading))

    def keep_index(self, reading: ImageReading) -> None:
        """Remember which image an index leads to, where that image's reading is kept."""
        if self._options.cache and reading.index and self.find(reading.digest):
            name = self._key(reading.index, tuple(sorted(self._options.needs)))
            if cache.find(self._options.cache, name) is None:
                cache.keep(self._options.cache, name, stored(reading))

    @cached_property
    def _common(self) -> dict[str, Any]:
        """Everything but the digest and the needs that a reading depends on."""
        return {
            "version": __version__,
            "platform": str(self._platform),
            "signals": cache.key("", self._signals),
            "layers": self._options.layers,
            "facts": hashlib.sha256(repr(self._options.arch_facts).encode()).hexdigest(),
            "packages": hashlib.sha256(repr(self._options.packages).encode()).hexdigest(),
            "form": _FORM,
        }

    def _key(self, digest: str, needs: tuple[str, ...]) -> str:
        return cache.key(digest, {**self._common, "needs": needs})
