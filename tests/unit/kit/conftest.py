"""Fixtures that the tests of this folder share: a gate in memory, and clients of it."""

from __future__ import annotations

from gate_in_memory import (
    client,
    client_of,
    description,
    make_client,
    open_gate,
    rooms,
    shared_client,
    stocked_file,
)

__all__ = [
    "client",
    "client_of",
    "description",
    "make_client",
    "open_gate",
    "rooms",
    "shared_client",
    "stocked_file",
]
