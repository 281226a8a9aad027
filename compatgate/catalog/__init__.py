"""Read the vendors' facts in ``matrix/facts`` into the tables of `compatgate.core.facts`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compatgate.catalog.library import Library
from compatgate.catalog.overlay import find_overlays
from compatgate.core.facts import Facts
from compatgate.errors import NotFound

__all__ = ["load_facts", "open_library", "read_source"]

_loaded: Facts | None = None


def open_library(overlays: Sequence[str] | None = None) -> Library:
    """Open the catalog with the operators' overlays.

    These are files or directories; None: those of ``COMPATGATE_FACTS``.
    """
    library = Library(find_overlays(overlays))
    library.check_overlays()
    return library


def load_facts(overlays: Sequence[str] | None = None) -> Facts:
    """Load all facts; each table is read on first use, and once for the process."""
    global _loaded
    library = open_library(overlays)
    facts = _loaded  # another thread may load others meanwhile
    if facts is None or (facts.digest, facts.overlays) != (library.digest, library.labels):
        facts = _loaded = library.facts()
    return facts


def read_source(name: str, overlays: Sequence[str] | None = None) -> dict[str, Any]:
    """Return a fact file with every field and note, overlays applied."""
    library = open_library(overlays)
    if name not in library.names:
        hint = f"one of {', '.join(library.names)}"
        raise NotFound(f"no facts are named {name!r}", field="facts", value=name, hint=hint)
    return library.document(name)
