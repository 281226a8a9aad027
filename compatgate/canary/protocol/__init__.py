"""Readers of programs' output: one reader per adapter."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from compatgate.canary.protocol.adapters import TOOLS, ToolOutput
from compatgate.canary.protocol.jsonl import JsonLines
from compatgate.canary.run import Report
from compatgate.canary.workload import Workload
from compatgate.documents.sources import suggest_name
from compatgate.errors import NotFound


class Reader(Protocol):
    """Reader of one execution's output, in pieces of any size that are cut anywhere."""

    @property
    def progress(self) -> float | None:
        """Return how far the program says it is, 0 to 1."""
        ...

    def feed(self, data: bytes) -> None:
        """Read the next piece."""
        ...

    def report(self) -> Report:
        """Return the report; later pieces are not read."""
        ...


READERS: dict[str, Callable[[Workload], Reader]] = {
    "jsonl": JsonLines,
    **{name: partial(ToolOutput, read) for name, read in TOOLS.items()},
}
"""Adapter, as in ``workload.toml``, to its reader."""


def make_reader(workload: Workload) -> Reader:
    """Return a reader for one execution of a workload."""
    if make := READERS.get(workload.adapter):
        return make(workload)
    raise NotFound(
        f"adapter {workload.adapter!r} does not exist",
        field="adapter",
        value=workload.adapter,
        hint=suggest_name(workload.adapter, READERS),
    )


def read_report(pieces: Iterable[bytes], workload: Workload) -> Report:
    """Return the report of a whole output."""
    reader = make_reader(workload)
    for piece in pieces:
        reader.feed(piece)
    return reader.report()
