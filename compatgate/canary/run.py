"""A run: one execution of a suite on one staging host for one stack, and how it stands."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from msgspec import Struct

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
        report: `compatgate.canary.report.Report` as plain data; None where nothing was printed.
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
