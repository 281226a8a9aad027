"""Read reports of other tools: DCGM, nccl-tests, and JSON lines; pure functions on text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from compatgate.canary.imports.json_lines import read_json_lines
from compatgate.canary.imports.observation import MAX_BYTES, Observation
from compatgate.canary.imports.tools import read_dcgm_diag, read_nccl
from compatgate.canary.protocol.jsonl import is_protocol_like
from compatgate.errors import BadInput

ImportFormat = Literal["dcgm", "nccl-tests", "jsonl"]
READERS: dict[ImportFormat, Callable[[str], list[Observation]]] = {
    "dcgm": read_dcgm_diag,
    "nccl-tests": read_nccl,
    "jsonl": read_json_lines,
}
"""Format to its reader."""
_NCCL_WORDS = ("# nThread", "# nccl-tests version", "# Avg bus bandwidth", '"nccl_version"')
_DCGM_WORDS = ('"DCGM Diagnostic"', '"DCGM GPU Diagnostic"')


def read_observations(
    text: str, form: ImportFormat | Literal["auto"]
) -> tuple[ImportFormat, tuple[Observation, ...]]:
    """Return the format of a whole report, and its observations."""
    if len(text.encode()) > MAX_BYTES:
        raise BadInput("the report is too large", field="file", hint=f"at most {MAX_BYTES} bytes")
    if not text.strip():
        raise BadInput("the report is empty", field="file")
    known = find_format(text) if form == "auto" else form
    return known, tuple(READERS[known](text))


def find_format(text: str) -> ImportFormat:
    """Return the format of a report."""
    if any(word in text for word in _NCCL_WORDS):
        return "nccl-tests"
    if any(word in text for word in _DCGM_WORDS):
        return "dcgm"
    if any(is_protocol_like(line.encode()) for line in text.splitlines()):
        return "jsonl"
    raise BadInput(
        "unknown format of the report",
        field="format",
        value="auto",
        hint=f"name the format: {', '.join(READERS)}",
    )
