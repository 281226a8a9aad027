"""What every fact has: where it was published, and how sure it is."""

from __future__ import annotations

from msgspec import Struct

Pair = tuple[int, int]
"""``major, minor`` of a CUDA version or of a compute capability."""


class Source(Struct, frozen=True):
    """Where a fact was published, and how sure it is."""

    title: str
    url: str | None = None
    confidence: str = "published"
