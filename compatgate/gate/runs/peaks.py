"""What a run's steps measured, as shares of the GPU's published peaks."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from compatgate.canary.peaks import Share, shares
from compatgate.canary.report import Report
from compatgate.canary.workloads import Library
from compatgate.core.facts import Facts
from compatgate.errors import CompatgateError
from compatgate.store.run_rows import StepRow


def shares_of(
    steps: Iterable[StepRow], catalogue: Callable[[], Library], facts: Facts
) -> dict[str, tuple[Share, ...]]:
    """Shares by step, as the workloads of today name the peaks; steps without any are left out.

    Neither workloads nor facts are read where no step saw a GPU. Workloads that cannot be read
    leave a run without shares rather than unseen.
    """
    reports = {step.name: step for step in steps if _saw_a_gpu(step)}
    if not reports:
        return {}
    try:
        workloads = catalogue().workloads
    except CompatgateError:
        return {}
    found = {}
    for name, step in reports.items():
        workload = workloads.get(step.body["workload"])
        report = msgspec.convert(step.body["report"], Report)
        if workload is not None:
            found[name] = shares(workload.metrics, report, facts.gpus, facts.gpu_peaks)
    return {name: some for name, some in found.items() if some}


def _saw_a_gpu(step: StepRow) -> bool:
    env = (step.body.get("report") or {}).get("env")
    return bool(env and env.get("gpus"))
