"""Readers of programs' output: one reader per adapter.

Damaged output is a problem of the report, never fewer results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from compatgate.canary.protocol.dcgm import read_dcgm
from compatgate.canary.protocol.jsonl import JsonLines
from compatgate.canary.protocol.nccl_tests import read_nccl_tests
from compatgate.canary.protocol.nvbandwidth import read_nvbandwidth
from compatgate.canary.protocol.tool import ToolOutput, ToolReader
from compatgate.canary.run import OutputReader, Report
from compatgate.canary.workload import Workload
from compatgate.documents.sources import suggest_name
from compatgate.errors import NotFound

TOOLS: dict[str, ToolReader] = {
    "nccl-tests": read_nccl_tests,
    "nvbandwidth": read_nvbandwidth,
    "dcgm-diag": read_dcgm,
}
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
