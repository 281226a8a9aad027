"""Say what the matrix shows of evidence, which another room keeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol


class Remarks(Protocol):
    """The remarks of runs on one entry."""

    def to_json(self) -> dict[str, Any]:
        """Return plain data as members of an entry."""


class EvidenceRemarks:
    """Knows what runs say of entries."""

    def remarks(self, entries: Iterable[str]) -> Mapping[str, Remarks]:
        """Return the remarks of runs on entries, by name."""
        raise NotImplementedError
