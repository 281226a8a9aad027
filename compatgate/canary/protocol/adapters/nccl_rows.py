"""What the forms of nccl-tests' output have in common."""

from __future__ import annotations

from msgspec import Struct


class Rank(Struct, frozen=True):
    """A rank and its GPU."""

    number: int
    host: str
    pci: str
    gpu: str


class Row(Struct, frozen=True):
    """A message size, out of place or in place.

    Attributes:
        size: bytes, as the tool rounded them.
        time: microseconds.
        algbw, busbw: GB/s.
        wrong: values that were wrong, None where they were not validated.
    """

    size: int
    type: str
    redop: str
    root: str
    in_place: bool
    time: float
    algbw: float
    busbw: float
    wrong: float | None


class Run(Struct, frozen=True):
    """One execution of a test.

    Attributes:
        tool: version of nccl-tests, where it prints one.
        nccl: version of the library that it loaded.
        out_of_bounds: results that failed validation, as the summary counts them.
        average: bus bandwidth, GB/s.
        bandwidth_ok: the tool's own judgement; None where it was not asked for one.
    """

    rows: tuple[Row, ...]
    ranks: tuple[Rank, ...] = ()
    tool: str | None = None
    nccl: str | None = None
    out_of_bounds: int | None = None
    average: float | None = None
    bandwidth_ok: bool | None = None
