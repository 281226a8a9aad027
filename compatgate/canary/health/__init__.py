"""GPU health: errors in the kernel log and NVML's state, for people and for canary runs."""

from __future__ import annotations

from compatgate.canary.health.events import Event, read_log
from compatgate.canary.health.judge import Health, judge_health
from compatgate.canary.health.kernel_log import KernelLog
from compatgate.canary.health.snapshot import Gpu, Snapshot, snapshot

__all__ = [
    "Event",
    "Gpu",
    "Health",
    "KernelLog",
    "Snapshot",
    "judge_health",
    "read_log",
    "snapshot",
]
