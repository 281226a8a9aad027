"""Read ``dcgmi diag --json``: the form of DCGM 3 and before, and that of DCGM 4.

Source: https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/dcgm-diagnostics.html and, for
version 4, ``testing/python3/dcgm_diag_schema.json`` of https://github.com/NVIDIA/DCGM.

Checks, all about the host: ``diagnostics`` (at least one test ran and none failed), and one per
test that ran, by its name in lower case (``pcie``, ``memory``, ``targeted-stress``).
Metrics, if DCGM reports them: ``TEST-gflops-gpuN`` (GFLOP/s), ``pcie-d2h-gpuN``, ``pcie-h2d-gpuN``
and ``pcie-bidirectional-gpuN`` (GB/s).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal

from msgspec import Struct

from compatgate.canary.protocol.jsonl import BrokenLine
from compatgate.canary.protocol.tool import (
    ToolResults,
    find_documents,
    read_member,
    read_objects,
)

_OLD, _NEW = "DCGM GPU Diagnostic", "DCGM Diagnostic"
_PASSED = frozenset({"pass", "passed"})
_FAILED = frozenset({"fail", "failed", "warn", "warning", "error"})
_SKIPPED = frozenset({"skip", "skipped", "not run", "notrun", "n/a"})
_GFLOPS = re.compile(r"GPU (\d+) calculated at approximately ([\d.]+) gigaflops")
_PCIE = re.compile(
    r"(?:GPU (\d+) )?(GPU to Host|Host to GPU|bidirectional) bandwidth:\s*([\d.]+) GB/s"
)
_DIRECTIONS = {"GPU to Host": "d2h", "Host to GPU": "h2d", "bidirectional": "bidirectional"}


class _Result(Struct, frozen=True):
    """Result of one test for all GPUs, or for the one whose number is ``entity``."""

    status: str
    entity: str
    warnings: tuple[str, ...]
    info: tuple[str, ...]


def read_dcgm(text: str, found: ToolResults) -> None:
    """Read every diagnosis in the output."""
    bodies = list(find_documents(text, f"{_OLD}|{_NEW}|metadata|entity_groups"))
    if not bodies:
        found.problem("the output has no JSON of dcgmi diag")
    for body in bodies:
        _read(body, found)


def _read(body: dict[str, Any], found: ToolResults) -> None:
    whole = read_member(body, _NEW, dict) or read_member(body, _OLD, dict)
    if whole is None:
        raise BrokenLine("the JSON document has no diagnosis")
    for place in (read_member(body, "metadata", dict, {}), whole, body):
        if driver := read_member(place, "Driver Version Detected", str):
            found.version("driver", driver)
        if version := read_member(place, "version", str):
            found.other["dcgm"] = version
    if error := whole.get("runtime_error") or body.get("runtime_error") or body.get("Error"):
        found.check("diagnostics", False, str(error), host=True)
        return
    tests = [
        test
        for category in read_objects(whole, "test_categories")
        for test in read_objects(category, "tests")
    ]
    outcomes = [_report(test, found) for test in tests]
    if "failed" in outcomes:
        return
    if passed := outcomes.count("passed"):
        found.check("diagnostics", True, f"{passed} tests passed", host=True)
    else:
        found.problem("dcgmi diag ran no test")


def _report(test: dict[str, Any], found: ToolResults) -> Literal["passed", "failed", "skipped"]:
    name = re.sub(r"[^a-z0-9]+", "-", read_member(test, "name", str, "").lower()).strip("-")[:128]
    if not name:
        raise BrokenLine("a test has no name")
    results = [_result(result) for result in read_objects(test, "results")]
    summary = str(read_member(test, "test_summary", dict, {}).get("status", ""))
    statuses = {result.status for result in results} | ({summary.lower()} if summary else set())
    if unknown := statuses - _PASSED - _FAILED - _SKIPPED:
        found.problem(f"{name}: unknown status {min(unknown)[:40]!r}")
        return "skipped"
    for result in results:
        _measure(name, result, found)
    if statuses & _FAILED:
        reasons = []
        for result in results:
            if result.status in _FAILED:
                where = f"GPU {result.entity}: " if result.entity else ""
                reasons += [where + line for line in result.warnings or (result.status,)]
        found.check(name, False, "; ".join(reasons) or "failed", host=True)
        found.check("diagnostics", False, f"{name}: {'; '.join(reasons) or 'failed'}", host=True)
        return "failed"
    if statuses & _SKIPPED or not statuses:
        skipped: list[str] = found.other.setdefault("skipped", [])
        skipped.append(name)
        # If a GPU was left out, the host has not passed.
        if statuses & _PASSED:
            found.problem(f"{name}: ran on some GPUs only")
        return "skipped"
    found.check(name, True, f"{len(results)} results", host=True)
    return "passed"


def _result(body: dict[str, Any]) -> _Result:
    entity = next((body[key] for key in ("gpu_id", "gpu_ids", "entity_id") if key in body), "")
    return _Result(
        status=" ".join(read_member(body, "status", str, "").lower().split()),
        entity=str(entity),
        warnings=tuple(_texts(body.get("warnings"))),
        info=tuple(_texts(body.get("info"))),
    )


def _texts(value: object) -> Iterator[str]:
    """Yield text, a list of it, or DCGM 4's objects with a ``warning``."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        yield from _texts(value.get("warning"))


def _measure(test: str, result: _Result, found: ToolResults) -> None:
    for line in result.info:
        for match in _GFLOPS.finditer(line):
            found.metric(f"{test}-gflops-gpu{match[1]}", "GFLOP/s", float(match[2]))
        for match in _PCIE.finditer(line):
            # DCGM 4 names the GPU next to the line; older versions name it in the line.
            gpu = match[1] or result.entity
            if gpu.isdecimal():
                name = f"pcie-{_DIRECTIONS[match[2]]}-gpu{gpu}"
                found.metric(name, "GB/s", float(match[3]))
