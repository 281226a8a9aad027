"""What NCCL logs with ``NCCL_DEBUG=INFO``: its version and the transports that it really used.

Source: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html (NCCL_DEBUG); the lines
themselves are those of NCCL 2.4, 2.7, 2.18 and later, which differ a little.
"""

from __future__ import annotations

import re
from collections import Counter

from msgspec import Struct

_FROM_TO = re.compile(r"NCCL INFO (?:Channel|Ring) [^>]*->")
_COMM = re.compile(r" comm 0x[0-9a-f]+")
_NVLS = re.compile(r"NCCL INFO (?:NVLS comm 0x[0-9a-f]+|Connected NVLS tree)")
_NETWORK = re.compile(r"NCCL INFO Using network (?P<name>[^\n]+?)\s*$", re.MULTILINE)
_VERSION = re.compile(r"NCCL version (?P<version>\d+(?:\.\d+)+)(?:\+cuda(?P<cuda>\d+\.\d+))?")
_WARNING = re.compile(r"NCCL WARN (?P<text>[^\n]+)")
_NUMBER = re.compile(r"\d+(?:\(\d+\))?|Shared")
_MOST_WARNINGS = 20


class NcclLog(Struct, frozen=True):
    """What a log says.

    Attributes:
        version: of the library that was loaded.
        cuda: that it was built for.
        transports: how many connections went over each: ``NET/IB/GDRDMA``, ``NET/IB``,
            ``NET/Socket``, ``P2P/CUMEM``, ``P2P/IPC``, ``SHM``, ``NVLS``.
        network: chosen for other hosts, used or not.
        warnings: the first of them.
    """

    version: str | None = None
    cuda: str | None = None
    transports: dict[str, int] = {}
    network: str | None = None
    warnings: tuple[str, ...] = ()


class Judged(Struct, frozen=True):
    """Whether the transport is the one that was meant, and why in one line."""

    ok: bool
    message: str


def read_nccl_log(text: str) -> NcclLog:
    """Read NCCL's lines among others."""
    transports = Counter(_transport(via) for line in text.splitlines() if (via := _via(line)))
    if nvls := len(_NVLS.findall(text)):
        transports["NVLS"] = nvls
    version = _VERSION.search(text)
    networks = {match["name"] for match in _NETWORK.finditer(text)}
    return NcclLog(
        version=version["version"] if version else None,
        cuda=version["cuda"] if version else None,
        transports=dict(sorted(transports.items())),
        network=", ".join(sorted(networks)) or None,
        warnings=tuple(m["text"] for m in _WARNING.finditer(text))[:_MOST_WARNINGS],
    )


def judge_transport(log: NcclLog, *, hosts: int, sockets_meant: bool) -> Judged | None:
    """Whether a collective went the way that it should; None where the log does not tell.

    Between hosts NCCL falls back to TCP sockets, many times slower, when it finds no better
    network, and says so only in its log. Between GPUs of one host it falls back from peer-to-peer
    to shared memory, and to sockets where there is no shared memory either.

    Args:
        log: of the run.
        hosts: on which ranks ran.
        sockets_meant: ``workload.toml`` asks for them (``NCCL_NET = "Socket"``).
    """
    used = log.transports
    if not used and hosts > 1 and log.network:
        used = {f"NET/{name}": 0 for name in log.network.split(", ")}
    if not used:
        return None
    shown = ", ".join(f"{name} ({n})" if n else name for name, n in used.items())
    if "NET/Socket" not in used:
        return Judged(True, shown)
    if sockets_meant:
        return Judged(True, f"{shown}; sockets are meant")
    return Judged(False, f"fell back to TCP sockets: {shown}")


def judge_gpudirect(log: NcclLog) -> Judged | None:
    """Whether all traffic between hosts went past the CPU's memory; None without a network."""
    networks = {name: count for name, count in log.transports.items() if name.startswith("NET/")}
    if not networks:
        return None
    without = [name for name in networks if not name.endswith("/GDRDMA")]
    return Judged(not without, f"{', '.join(without or networks)}")


def _via(line: str) -> str | None:
    """What a line on a connection says behind ``via``; None of any other line."""
    before, found, via = line.rpartition(" via ")
    return _COMM.split(via)[0].strip() if found and _FROM_TO.search(before) else None


def _transport(via: str) -> str:
    """``NET/IB/0(3)/GDRDMA`` without its numbers; the ways through shared memory as one."""
    if via == "direct shared memory":
        return "SHM"
    parts = [part.strip() for part in via.split("/") if not _NUMBER.fullmatch(part.strip())]
    if parts[:1] == ["SHM"]:
        return "SHM"
    direct = ["GDRDMA"] if "GDRDMA" in parts[2:] else []
    return "/".join([*parts[:2], *direct])[:80] or "?"
