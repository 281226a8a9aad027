"""GPU health: what the kernel log and NVML say, for people and around canary runs.

The engine takes a `snapshot` before, during and after a run, has `watch` collect what the kernel
reports meanwhile, and asks `judge_health` what became of the GPUs.
"""

from __future__ import annotations

from compatgate.canary.health.events import Event, read_log
from compatgate.canary.health.judge import Health, judge_health
from compatgate.canary.health.kernel_log import KernelLog, watch
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
    "watch",
]
