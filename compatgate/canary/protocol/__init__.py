"""Readers of programs' output: one reader per adapter."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from compatgate.canary.protocol.adapters import TOOLS, ToolOutput
from compatgate.canary.protocol.jsonl import JsonLines
from compatgate.canary.run import OutputReader, Report
from compatgate.canary.workload import Workload
from compatgate.documents.sources import suggest_name
from compatgate.errors import NotFound

READERS: dict[str, Callable[[Workload], OutputReader]] = {
    "jsonl": JsonLines,
    **{name: partial(ToolOutput, read) for name, read in TOOLS.items()},
}
"""Adapter, as in ``workload.toml``, to its reader."""


def make_reader(workload: Workload) -> OutputReader:
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
