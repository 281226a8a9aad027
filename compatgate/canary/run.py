"""Describe a run, the results of its steps, and what a workload reported, as values.

A run is one execution of a suite on one staging host for one stack.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

Outcome = Literal["passed", "failed", "inconclusive", "error", "timeout", "cancelled"]
State = Literal["queued", "leased", "preparing", "running", "judging"] | Outcome
Purpose = Literal["request", "verification"]
ENDED: tuple[Outcome, ...] = ("passed", "failed", "inconclusive", "error", "timeout", "cancelled")


class Run(Struct, frozen=True):
    """What is to be run, and how far it is.

    Attributes:
        id: ``run_...``.
        target, pool: that it was asked for.
        stack: under test, in the form of a gate request.
        image: under test, by digest once it was resolved.
        gpu: SKU that a host must have, MIG profile included; None: a host without GPUs will do.
        driver: that a host should have; evidence is bound to what is measured.
        gpus: slots that it takes, at least one.
        host: the one it must run on; None: any that fits.
        priority: higher goes first; 0 is ordinary.
        attempts: begun so far.
        doing, progress: for people; progress is 0 to 1.
        reason: why it stands as it does; of an ended run, in one line.
    """

    id: str
    suite: str
    state: State
    stack: dict[str, Any]
    target: str | None = None
    pool: str | None = None
    image: str | None = None
    gpu: str | None = None
    driver: str | None = None
    gpus: int = 1
    host: str | None = None
    priority: int = 0
    purpose: Purpose = "request"
    attempts: int = 0
    max_attempts: int = 3
    doing: str = ""
    progress: float | None = None
    reason: str = ""
    asked_by: str = ""
    created_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None


class Origin(Struct, frozen=True):
    """What a step's values are values of, where they are to count elsewhere.

    Attributes:
        digest: of the workload's content as it was run.
        sku: of the host, as baselines are kept for it; ``cpu`` where it has no GPUs.
        executor: kind of it, as ``hosts.toml`` names it.
        development: it ran outside a container.
    """

    digest: str
    sku: str
    executor: str
    development: bool


class StepResult(Struct, frozen=True):
    """What became of one workload with one seed.

    Attributes:
        name: of the step, unique in the run: ``gemm-0``.
        report: `compatgate.canary.run.Report` as plain data; None where nothing was printed.
        judgement: what the judge said of it, as plain data.
        health: of the host around it, as plain data; None: not observed.
        image: that ran, by digest.
        origin: None in results that were recorded before this was kept.
    """

    name: str
    workload: str
    seed: int
    outcome: Outcome
    reason: str = ""
    exit_code: int | None = None
    image: str | None = None
    report: dict[str, Any] | None = None
    judgement: dict[str, Any] | None = None
    health: dict[str, Any] | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    origin: Origin | None = None


class Device(Struct, frozen=True):
    """A GPU as the process saw it."""

    name: str
    uuid: str | None = None
    pci: str | None = None
    memory_bytes: int | None = None
    compute_capability: str | None = None
    mig: str | None = None


class Env(Struct, frozen=True):
    """The first line: what is really loaded.

    Attributes:
        versions: canonical component to version as the process reported it, the driver apart.
        paths: component to the file it was loaded from.
        other: the line's further members, kept as they came.
    """

    driver: str | None = None
    gpus: tuple[Device, ...] = ()
    versions: dict[str, str] = {}
    paths: dict[str, str] = {}
    other: dict[str, Any] = {}


class Metric(Struct, frozen=True):
    """Values of a metric in the order measured; a repeated line appends.

    Attributes:
        warmup: leading values that the program marked as warm-up; not judged.
    """

    name: str
    unit: str
    values: tuple[float, ...]
    warmup: tuple[float, ...] = ()


class Check(Struct, frozen=True):
    """Something that holds or does not.

    Attributes:
        ok: it does not fail.
        skipped: it does not apply here, so that it neither passes nor fails; the message says why.
    """

    name: str
    ok: bool
    message: str = ""
    skipped: bool = False


class Report(Struct, frozen=True):
    """Everything that one execution of a workload printed.

    Attributes:
        problems: lines that broke the protocol, each with its number and what was wrong; a report
            with problems is never evidence.
        lines: how many were read; ``dropped_bytes`` came beyond the limit of output.
        own_fault: how an existing tool says that its own CUDA is too new for the driver; that is
            neither for nor against the stack under test.
        truncated: output was cut, so that something may be missing.
    """

    env: Env | None = None
    metrics: tuple[Metric, ...] = ()
    checks: tuple[Check, ...] = ()
    progress: float | None = None
    problems: tuple[str, ...] = ()
    lines: int = 0
    dropped_bytes: int = 0
    own_fault: str = ""

    @property
    def truncated(self) -> bool:
        """Return whether something may be missing."""
        return self.dropped_bytes > 0


def merge_reports(reports: Sequence[Report]) -> Report:
    """Executions of the same workload as one report: the last one, with the values of all."""
    values: dict[str, Metric] = {}
    for report in reports:
        for metric in report.metrics:
            before = values.get(metric.name)
            kept = before.values if before else ()
            warmup = before.warmup if before else ()
            values[metric.name] = replace(
                metric, values=kept + metric.values, warmup=warmup + metric.warmup
            )
    return replace(reports[-1], metrics=tuple(values.values()))
