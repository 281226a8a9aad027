"""Read the JSON of nvbandwidth (``--json``).

Source: https://github.com/NVIDIA/nvbandwidth, ``json_output.cpp``; and the output of 0.5.

Metrics of a test case ``T``: ``T-sum``, ``T-min`` (the weakest pair, which a sum hides) and each
pair ``T-ROW-COLUMN``, in GB/s, latencies in ns. Check: ``completed`` (at least one case ran, none
failed). ``CUDA Runtime Version`` is stored separately: up to 0.9 the tool prints the driver's CUDA
there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from compatgate.canary.protocol.jsonl import BrokenLine, read_number
from compatgate.canary.protocol.tool import (
    RUNTIME_FAULT,
    ToolResults,
    find_documents,
    read_member,
    read_objects,
)

_UNIT = re.compile(r"\((GB/s|ns)\)")
_PTX = r"the provided PTX was compiled with an unsupported toolchain\.?"
_FAULT = re.compile(
    rf"\[(?:cudaErrorInsufficientDriver\] {RUNTIME_FAULT}"
    rf"|(?:cudaErrorUnsupportedPtxVersion|CUDA_ERROR_UNSUPPORTED_PTX_VERSION)\] {_PTX})"
    r" in expression .+"
)
_ROUNDED = 1e-4
"""Share of a sum that the rounding of its pairs, to six digits, may change."""


def read_nvbandwidth(text: str, found: ToolResults) -> None:
    """Read every document in the output; a tool that cannot begin prints an error in its place."""
    for line in text.splitlines():
        found.note_fault(_FAULT, line)
    bodies = list(find_documents(text, "nvbandwidth"))
    if not bodies:
        found.problem("the output has no JSON of nvbandwidth: call it with --json")
    for body in bodies:
        _read(read_member(body, "nvbandwidth", dict, {}), found)


def _read(body: dict[str, Any], found: ToolResults) -> None:
    if driver := read_member(body, "Driver Version", str):
        found.version("driver", driver)
    found.other["nvbandwidth"] = read_member(body, "version", str, "")
    found.other["cuda-as-printed"] = [str(body.get("CUDA Runtime Version", ""))]
    waived: list[str] = []
    passed = 0
    for case in read_objects(body, "testcases") if "testcases" in body else []:
        name = read_member(case, "name", str)
        if name is None:
            raise BrokenLine("a test case has no name")
        status = read_member(case, "status", str, "")
        if status == "Passed":
            _measure(name, case, found)
            passed += 1
        elif status == "Waived":
            waived.append(name)
        elif status in ("Error", "Not Found"):
            if not found.note_fault(_FAULT, str(case.get("error", ""))):
                found.check("completed", False, f"{name}: {case.get('error', status)}")
        else:
            found.problem(f"{name}: unknown status {status[:40]!r}")
    error = body.get("error")
    if error and not found.note_fault(_FAULT, str(error)):
        found.check("completed", False, str(error))
    if waived:
        found.other["waived"] = waived
    if passed:
        found.check("completed", True, f"{passed} test cases")
    elif not waived and not error:
        found.problem("the output has no result of nvbandwidth")


def _measure(name: str, case: dict[str, Any], found: ToolResults) -> None:
    """Report a matrix; its sum shows whether a row is missing or a digit is lost."""
    stated = _UNIT.search(read_member(case, "bandwidth_description", str, ""))
    if stated is None:
        raise BrokenLine(f"{name}: its description names no unit")
    rows = read_member(case, "bandwidth_matrix", list, [])
    if not all(isinstance(row, list) and len(row) == len(rows[0]) for row in rows):
        raise BrokenLine(f"{name}: the matrix is damaged")
    unit, total = stated[1], read_number(f"{name}: sum", case.get("sum"))
    pairs = _read_pairs(name, rows)
    if not pairs:
        found.problem(f"{name}: the matrix has no value")
    elif not abs(sum(pairs.values()) - total) <= abs(total) * _ROUNDED:
        added = sum(pairs.values())
        found.problem(f"{name}: the sum is {total:g}, but its pairs add up to {added:g}")
    else:
        found.metric(f"{name}-sum", unit, total)
        found.metric(f"{name}-min", unit, min(pairs.values()))
        for place, value in pairs.items():
            found.metric(f"{name}-{place}", unit, value)


def _read_pairs(name: str, rows: Sequence[Sequence[object]]) -> dict[str, float]:
    """Return the values by ``ROW-COLUMN``, without the pairs that were not run."""
    pairs = {}
    for i, row in enumerate(rows):
        for j, cell in enumerate(row):
            if cell != "N/A":
                try:
                    pairs[f"{i}-{j}"] = float(str(cell))
                except ValueError:
                    what = f"{name}: {str(cell)[:40]!r} is not a number"
                    raise BrokenLine(what) from None
    return pairs
