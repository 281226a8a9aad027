"""What every fact has: where it was published, and how sure it is."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

Pair = tuple[int, int]
"""``major, minor`` of a CUDA version or of a compute capability."""


class Reference(Struct, frozen=True):
    """Something published, and its address where that is known."""

    title: str
    url: str | None = None


class Source(Struct, frozen=True):
    """Where a fact was published, and how sure it is.

    Attributes:
        also: what else says it, each with its own address.
    """

    title: str
    url: str | None = None
    confidence: str = "published"
    also: tuple[Reference, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The form that answers carry."""
        also = [{"title": one.title, "url": one.url} for one in self.also]
        return {
            "title": self.title,
            "url": self.url,
            "confidence": self.confidence,
            "also": also,
        }
