"""Read the table of nccl-tests (``all_reduce_perf`` and its siblings), and NCCL's log.

Source: https://github.com/NVIDIA/nccl-tests, ``src/common.cu`` and ``src/util.cu`` of several
releases; ``doc/PERFORMANCE.md`` for what the columns mean.

Metrics: ``time-SIZE`` (us), ``algbw-SIZE`` and ``busbw-SIZE`` (GB/s), out of place; the same with
``-inplace``; ``busbw-avg`` (GB/s). Checks: ``right`` (no wrong values), ``transport``,
``bandwidth`` if the tool judges it, ``gpudirect`` if ``workload.toml`` asks for it.

NCCL's log with ``NCCL_DEBUG=INFO`` contains its version and the transports that it used.
Source: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html (NCCL_DEBUG); the lines
are those of NCCL 2.4, 2.7, 2.18 and later, which differ slightly.
"""

from __future__ import annotations

import re
from collections import Counter

from msgspec import Struct

from compatgate.canary.protocol import nccl_output
from compatgate.canary.protocol.nccl_output import Row, Run
from compatgate.canary.protocol.tool import RUNTIME_FAULT, ToolResults
from compatgate.canary.run import Device
from compatgate.core.versions import parse_version
from compatgate.errors import BadInput

# Without PTX: the tool also launches kernels of NCCL, which is under test.
_FAULT = re.compile(rf"(?:\S+:)? ?Test CUDA failure \S+:\d+ '{RUNTIME_FAULT}'")


def read_nccl_tests(text: str, found: ToolResults) -> None:
    """Read the whole output of the tool and of NCCL."""
    for line in text.splitlines():
        found.note_fault(_FAULT, line)
    log = read_nccl_log(text)
    runs = nccl_output.read_table(text, found)
    if not runs:
        found.problem("the output has no table of nccl-tests")
        return
    rows = [row for run in runs for row in run.rows]
    if len({(row.type, row.redop, row.root) for row in rows}) > 1:  # sizes must mean the same
        found.problem("the output has several data types, operations or roots; run one at a time")
        return
    for row in rows:
        suffix = f"{row.size}-inplace" if row.in_place else str(row.size)
        found.metric(f"time-{suffix}", "us", row.time)
        found.metric(f"algbw-{suffix}", "GB/s", row.algbw)
        found.metric(f"busbw-{suffix}", "GB/s", row.busbw)
    for run in runs:
        if run.average is not None:
            found.metric("busbw-avg", "GB/s", run.average)
    _check_values(runs, rows, found)
    ranks = max((run.ranks for run in runs), key=len)
    _report_versions(runs, log, found)
    hosts = sorted({rank.host for rank in ranks})
    found.other["ranks"] = len(ranks)
    found.other["hosts"] = hosts
    found.other["transports"] = log.transports
    asked = found.workload.environment.get("NCCL_NET", "") if found.workload else ""
    meant = asked.lower() == "socket"
    if judged := _judge_transport(log, hosts=len(hosts), sockets_meant=meant):
        found.check("transport", *judged)
    networks = {name: count for name, count in log.transports.items() if name.startswith("NET/")}
    asks = found.workload is None or "gpudirect" in found.workload.checks
    if asks and networks:
        without = [name for name in networks if not name.endswith("/GDRDMA")]
        found.check("gpudirect", not without, ", ".join(without or networks))


def _check_values(runs: list[Run], rows: list[Row], found: ToolResults) -> None:
    """Report wrong values; without validation (``-c 0``), report no check."""
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


def _report_versions(runs: list[Run], log: NcclLog, found: ToolResults) -> None:
    for run in runs:
        if run.nccl:
            try:
                version = ".".join(map(str, parse_version("nccl", run.nccl).parts))
            except BadInput:
                version = run.nccl
            found.version("nccl", version)
        for rank in run.ranks:
            found.gpu(Device(name=rank.gpu, pci=rank.pci))
    if log.version:
        found.version("nccl", log.version)
    found.other["nccl-tests"] = runs[0].tool
    if log.cuda:
        found.other["nccl-built-for-cuda"] = log.cuda
    if log.warnings:
        found.other["nccl-warnings"] = list(log.warnings)


_FROM_TO = re.compile(r"NCCL INFO (?:Channel|Ring) [^>]*->")
_COMM = re.compile(r" comm 0x[0-9a-f]+")
_NVLS = re.compile(r"NCCL INFO (?:NVLS comm 0x[0-9a-f]+|Connected NVLS tree)")
_NETWORK = re.compile(r"NCCL INFO Using network (?P<name>[^\n]+?)\s*$", re.MULTILINE)
_VERSION = re.compile(r"NCCL version (?P<version>\d+(?:\.\d+)+)(?:\+cuda(?P<cuda>\d+\.\d+))?")
_WARNING = re.compile(r"NCCL WARN (?P<text>[^\n]+)")
_NUMBER = re.compile(r"\d+(?:\(\d+\))?|Shared")
_MAX_WARNINGS = 20


class NcclLog(Struct, frozen=True):
    """Content of NCCL's log: the CUDA it was built for, and the network chosen, used or not.

    ``transports`` counts connections over each of ``NET/IB/GDRDMA``, ``NET/IB``, ``NET/Socket``,
    ``P2P/CUMEM``, ``P2P/IPC``, ``SHM`` and ``NVLS``.
    """

    version: str | None = None
    cuda: str | None = None
    transports: dict[str, int] = {}
    network: str | None = None
    warnings: tuple[str, ...] = ()


def read_nccl_log(text: str) -> NcclLog:
    """Read NCCL's lines among others."""
    transports: Counter[str] = Counter()
    for line in text.splitlines():
        before, named, via = line.rpartition(" via ")
        if named and _FROM_TO.search(before) and (route := _COMM.split(via)[0].strip()):
            transports[_transport(route)] += 1
    if nvls := len(_NVLS.findall(text)):
        transports["NVLS"] = nvls
    version = _VERSION.search(text)
    networks = {match["name"] for match in _NETWORK.finditer(text)}
    return NcclLog(
        version=version["version"] if version else None,
        cuda=version["cuda"] if version else None,
        transports=dict(sorted(transports.items())),
        network=", ".join(sorted(networks)) or None,
        warnings=tuple(m["text"] for m in _WARNING.finditer(text))[:_MAX_WARNINGS],
    )


def _judge_transport(log: NcclLog, *, hosts: int, sockets_meant: bool) -> tuple[bool, str] | None:
    """Return whether a collective used the intended transport, and why; None: the log is silent.

    Between hosts NCCL falls back to TCP sockets, which are many times slower, if it finds no better
    network, and says so only in its log. Between GPUs of one host it falls back from peer-to-peer
    to shared memory, and to sockets if there is no shared memory. Sockets are meant where
    ``workload.toml`` asks for them (``NCCL_NET = "Socket"``).
    """
    used = log.transports
    if not used and hosts > 1 and log.network:
        used = {f"NET/{name}": 0 for name in log.network.split(", ")}
    if not used:
        return None
    names = ", ".join(f"{name} ({n})" if n else name for name, n in used.items())
    if "NET/Socket" not in used:
        return True, names
    if sockets_meant:
        return True, f"{names}; the workload requires sockets"
    return False, f"fell back to TCP sockets: {names}"


def _transport(via: str) -> str:
    """Remove the numbers of ``NET/IB/0(3)/GDRDMA``; merge the ways through shared memory."""
    if via == "direct shared memory":
        return "SHM"
    parts = [part.strip() for part in via.split("/") if not _NUMBER.fullmatch(part.strip())]
    if parts[:1] == ["SHM"]:
        return "SHM"
    direct = ["GDRDMA"] if "GDRDMA" in parts[2:] else []
    return "/".join([*parts[:2], *direct])[:80] or "?"
