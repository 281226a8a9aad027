"""Fixtures that the tests of this folder share: facts, a gate in memory, and clients of it."""

from __future__ import annotations

from asking import ask, facts, gpus, now, pool_of, stack_of
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
    "ask",
    "client",
    "client_of",
    "description",
    "facts",
    "gpus",
    "make_client",
    "now",
    "open_gate",
    "pool_of",
    "rooms",
    "shared_client",
    "stack_of",
    "stocked_file",
]
