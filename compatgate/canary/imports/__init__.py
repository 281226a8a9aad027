"""Read reports of other tools: one module per format, pure functions on text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from compatgate.canary.imports.nvcre import read_nvcre
from compatgate.canary.imports.observation import (
    MAX_BYTES,
    MAX_OBSERVATIONS,
    Observation,
    limit,
    parse_json,
)
from compatgate.canary.imports.reframe import read_reframe
from compatgate.canary.imports.superbench import read_superbench
from compatgate.canary.imports.tools import read_dcgm_diag, read_nccl
from compatgate.errors import BadInput

ImportFormat = Literal["dcgm", "nccl-tests", "reframe", "superbench", "nvcre"]
READERS: dict[ImportFormat, Callable[[str], list[Observation]]] = {
    "dcgm": read_dcgm_diag,
    "nccl-tests": read_nccl,
    "reframe": read_reframe,
    "superbench": read_superbench,
    "nvcre": read_nvcre,
}
"""Format to its reader."""
_NCCL_WORDS = ("# nThread", "# nccl-tests version", "# Avg bus bandwidth", '"nccl_version"')


def read_observations(
    text: str, form: ImportFormat | Literal["auto"]
) -> tuple[ImportFormat, tuple[Observation, ...]]:
    """Return a report's format and what it says.

    Args:
        text: the whole report.
        form: its format; ``auto``: find it.

    Raises:
        BadInput: names the field; or the format is not known.
    """
    if len(text.encode()) > MAX_BYTES:
        raise BadInput("the report is too large", field="file", hint=f"at most {MAX_BYTES} bytes")
    if not text.strip():
        raise BadInput("the report is empty", field="file")
    known = find_format(text) if form == "auto" else form
    return known, limit(READERS[known](text), MAX_OBSERVATIONS, "results", "file")


def find_format(text: str) -> ImportFormat:
    """Return the format of a report.

    Raises:
        BadInput: it is none of the known formats.
    """
    if any(word in text for word in _NCCL_WORDS):
        return "nccl-tests"
    if '"DCGM Diagnostic"' in text or '"DCGM GPU Diagnostic"' in text:
        return "dcgm"
    first = text.lstrip().splitlines()[0]
    if first.startswith("{") and first.rstrip().endswith("}") and '"node"' in first:
        return "superbench"
    if text.lstrip()[:1] in "{[":
        members = _members(text)
        if {"session_info", "runs"} <= members:
            return "reframe"
        if {"categories", "result"} <= members or {"report", "generatedAt"} <= members:
            return "nvcre"
    raise BadInput(
        "unknown format of the report",
        field="format",
        value="auto",
        hint=f"name the format: {', '.join(READERS)}",
    )


def _members(text: str) -> set[str]:
    value = parse_json(text).value
    first = value[0] if isinstance(value, list) and value else value
    return set(first) if isinstance(first, dict) else set()
