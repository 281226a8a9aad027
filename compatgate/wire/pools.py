"""Pools as they are listed."""

from __future__ import annotations

from msgspec import Struct

from compatgate.core.target import Cpu, Os


class PoolRowBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A pool of a target; GPU and driver as written."""

    target: str
    name: str
    gpu: str
    driver: str
    os: Os
    cpu: Cpu
    count: int
