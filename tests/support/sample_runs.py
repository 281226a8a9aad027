"""Steps that measured, with no program behind them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from compatgate.canary.engine import BaselineKey
from compatgate.canary.judge.baseline import SampleSource, learn
from compatgate.canary.judge.result import Samples
from compatgate.canary.judge.workload import judge_reports
from compatgate.canary.run import Check, Device, Env, Metric, Origin, Report, StepResult
from compatgate.canary.workload import ImageSpec, MetricSpec, Workload
from compatgate.service.app import Rooms

SKU = "A100-SXM4-80GB"
FAMILY = "cuda-12.4+torch-2.4"
WHEN = datetime(2026, 11, 21, 20, 16, 37, tzinfo=UTC)
GEMM = Workload(
    name="gemm",
    description="multiplies",
    command=("gemm",),
    image=ImageSpec(inside=True),
    gpus=1,
    metrics={"time": MetricSpec(unit="ms", better="lower")},
    checks={"right": "the result is right"},
    digest="sha256:" + "0123456789abcdef" * 4,
)


def values(centre: float = 10.0) -> tuple[float, ...]:
    """Thirty values of a run."""
    return tuple(centre + 0.01 * (i * 7 % 11) for i in range(30))


def report(**changes: Any) -> Report:
    """What gemm printed on an A100."""
    env = Env(
        driver="535.183.01",
        gpus=(Device(f"NVIDIA {SKU}", uuid="GPU-5e7", pci="0000:07:00.0", memory_bytes=80 << 30),),
        versions={"cuda": "12.4.1", "torch": "2.4.1+cu124"},
        paths={"torch": "/opt/torch/__init__.py"},
        other={"clock": "events"},
    )
    whole = Report(
        env=env,
        metrics=(Metric("time", "ms", values(), (12.0,)),),
        checks=(Check("right", ok=True, message="within rounding"),),
        lines=9,
    )
    return msgspec.structs.replace(whole, **changes)


def step(said: Report | None = None, **changes: Any) -> StepResult:
    """A step that has no baseline yet, and nothing else against it."""
    said = said or report()
    judged = judge_reports(GEMM.metrics, list(GEMM.checks), [said], {})
    result = StepResult(
        name="gemm-0",
        workload="gemm",
        seed=0,
        outcome=judged.outcome,
        reason=judged.reason,
        report=msgspec.to_builtins(said),
        judgement=msgspec.to_builtins(judged),
        finished_at=WHEN,
        origin=Origin(GEMM.digest, SKU, "docker", development=False),
    )
    return msgspec.structs.replace(result, **changes)


def propose_samples(rooms: Rooms, ground: BaselineKey, *runs: str, note: str = "") -> int:
    """Store a version that rests on samples, as an earlier release did; return its id."""
    from compatgate.service.runs.evidence.baselines import latest_version, propose_version

    key = (ground.workload, ground.sku, ground.family, "time")
    found = [(f"{run}:gemm-0", Samples("time", "ms", (values(),))) for run in runs]
    learnt = learn(*key, GEMM.metrics["time"], found)
    versions = {"cuda": "12.4.1", "torch": "2.4.1+cu124"}
    source = SampleSource("2026-11-21T20:16:37Z", "535.183.01", versions, note)
    kept = tuple(msgspec.structs.replace(run, sample=source) for run in learnt.runs)
    body = msgspec.to_builtins(msgspec.structs.replace(learnt, runs=kept))
    with rooms.gate.database.writing() as session:
        propose_version(session, key, body, by="mara", at=WHEN)
        made = latest_version(session, key)
        assert made is not None
        return made.id
