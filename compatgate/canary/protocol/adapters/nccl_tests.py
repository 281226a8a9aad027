"""nccl-tests (``all_reduce_perf`` and its siblings): the text table, and JSON of ``-J``.

Source: https://github.com/NVIDIA/nccl-tests, ``src/common.cu`` and ``src/util.cu`` of several
releases; ``doc/PERFORMANCE.md`` for what the columns mean.

Metrics: ``time-SIZE`` (us), ``algbw-SIZE`` and ``busbw-SIZE`` (GB/s), out of place; the same with
``-inplace``; ``busbw-avg`` (GB/s). Checks: ``right`` (no wrong values), ``transport``,
``bandwidth`` where the tool judges it, ``gpudirect`` where ``workload.toml`` asks for it.
"""

from __future__ import annotations

from msgspec import Struct

from compatgate.canary.protocol.adapters import nccl_json, nccl_table, own_cuda
from compatgate.canary.protocol.adapters.found import Found
from compatgate.canary.protocol.adapters.nccl_log import (
    Judged,
    NcclLog,
    judge_gpudirect,
    judge_transport,
    read_nccl_log,
)
from compatgate.canary.protocol.adapters.nccl_rows import Rank, Row, Run
from compatgate.canary.report import Device
from compatgate.core.versions import parse_version
from compatgate.errors import BadInput


class _Ground(Struct, frozen=True):
    """What all rows of an output must share for their sizes to mean the same."""

    type: str
    redop: str
    root: str


def read_nccl_tests(text: str, found: Found) -> None:
    """Read everything that the tool and NCCL printed.

    Raises:
        Broken: the JSON is damaged.
    """
    for line in text.splitlines():
        own_cuda.of_nccl_tests(line, found)
    log = read_nccl_log(text)
    tables = nccl_table.read(text, found)
    # JSON has more digits; without MPI it names the first rank alone, the table names all.
    runs = nccl_json.read(text, found) or tables
    if not runs:
        found.problem("there is no table of nccl-tests")
        return
    rows = [row for run in runs for row in run.rows]
    grounds = {_Ground(row.type, row.redop, row.root) for row in rows}
    if len(grounds) > 1:
        found.problem("rows of several data types, operations or roots; run one at a time")
        return
    for row in rows:
        _publish(row, found)
    for run in runs:
        if run.average is not None:
            found.metric("busbw-avg", "GB/s", [run.average])
    _check_values(runs, rows, found)
    ranks = max((run.ranks for run in (*tables, *runs)), key=len)
    _say_versions((*tables, *runs), log, found)
    _check_transport(ranks, log, found)


def _publish(row: Row, found: Found) -> None:
    suffix = f"{row.size}-inplace" if row.in_place else str(row.size)
    found.metric(f"time-{suffix}", "us", [row.time])
    found.metric(f"algbw-{suffix}", "GB/s", [row.algbw])
    found.metric(f"busbw-{suffix}", "GB/s", [row.busbw])


def _check_values(runs: list[Run], rows: list[Row], found: Found) -> None:
    """Without validation (``-c 0``) nothing is said of the values, so nothing is checked."""
    checked = [row for row in rows if row.wrong is not None]
    wrong = [row for row in checked if row.wrong]
    bounds = sum(run.out_of_bounds or 0 for run in runs)
    if wrong:
        first = wrong[0]
        where = "in place" if first.in_place else "out of place"
        found.check("right", False, f"{first.wrong:g} wrong values at {first.size} bytes, {where}")
    elif bounds:
        found.check("right", False, f"{bounds} results out of bounds")
    elif checked:
        found.check("right", True, f"{len(checked)} results without a wrong value")
    judged = [run.bandwidth_ok for run in runs if run.bandwidth_ok is not None]
    if judged:
        found.check("bandwidth", all(judged), "average bus bandwidth, as NCCL_TESTS_MIN_BW asks")


def _say_versions(runs: tuple[Run, ...], log: NcclLog, found: Found) -> None:
    for run in runs:
        if run.nccl:
            found.version("nccl", _dotted(run.nccl))
        for rank in run.ranks:
            found.gpu(Device(name=rank.gpu, pci=rank.pci))
    if log.version:
        found.version("nccl", log.version)
    found.other["nccl-tests"] = runs[0].tool
    if log.cuda:
        found.other["nccl-built-for-cuda"] = log.cuda
    if log.warnings:
        found.other["nccl-warnings"] = list(log.warnings)


def _dotted(code: str) -> str:
    """``23005`` is 2.30.5; what is no such number is left as it is, to be refused by name."""
    try:
        return ".".join(map(str, parse_version("nccl", code).parts))
    except BadInput:
        return code


def _check_transport(ranks: tuple[Rank, ...], log: NcclLog, found: Found) -> None:
    hosts = sorted({rank.host for rank in ranks})
    found.other["ranks"] = len(ranks)
    found.other["hosts"] = hosts
    found.other["transports"] = log.transports
    asked = found.workload.environment.get("NCCL_NET", "") if found.workload else ""
    meant = asked.lower() == "socket"
    _say(found, "transport", judge_transport(log, hosts=len(hosts), sockets_meant=meant))
    if found.declares("gpudirect"):
        _say(found, "gpudirect", judge_gpudirect(log))


def _say(found: Found, name: str, judged: Judged | None) -> None:
    if judged:
        found.check(name, judged.ok, judged.message)
