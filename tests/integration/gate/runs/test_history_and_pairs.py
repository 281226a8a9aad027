"""A suite of 52 metrics on a gate: learned from three runs, judged by history or in pairs.

The executor is made for the test: each process measures at a level of its own, 1 % apart.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from contextlib import contextmanager, nullcontext

import pytest
from canary_runs import DRIVER, GPU, STACK, host
from engine_edges import Script, exited

from compatgate.canary.engine import HostContext, Settings
from compatgate.canary.engine.baseline_judge import BaselineJudge
from compatgate.canary.engine.drive import drive
from compatgate.canary.executors import PreparedJob
from compatgate.canary.executors.host_watch import HostObservation
from compatgate.canary.protocol import make_reader
from compatgate.canary.workload import ImageSpec, MetricSpec, Suite, Workload
from compatgate.canary.workloads import Library
from compatgate.service.runs.queue.schemas import RunRequest

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)

METRICS = tuple(f"m{i}" for i in range(52))
WIDE = Workload(
    name="wide",
    description="measures much",
    command=("wide",),
    image=ImageSpec(inside=True),
    gpus=1,
    metrics={name: MetricSpec(unit="ms", better="lower", repetitions=10) for name in METRICS},
    digest="sha256:" + "0" * 64,
)
REFERENCE, BLESSED, SLOW = (f"registry.example/app:{name}" for name in ("old", "new", "slow"))


class Processes(Script):
    """A host whose processes differ; the slow image has one metric 10 % worse."""

    runs_pairs = True

    def __init__(self, apart: float) -> None:
        super().__init__()
        self.apart = apart
        self.rng = random.Random(42)

    def prepare(self, job, progress):
        return PreparedJob(job, f"{job.image}@sha256:{'1' * 64}")

    @contextmanager
    def hold(self, jobs):
        yield self

    def start(self, prepared):
        rng, said = (
            self.rng,
            [
                {
                    "type": "env",
                    "driver": DRIVER,
                    "gpus": [{"name": GPU}],
                    "cuda": "12.4.1",
                    "cudnn": "9.1.0.70",
                    "torch": "2.4.1+cu124",
                }
            ],
        )
        for name in METRICS:
            level = 10 * rng.lognormvariate(0, self.apart)
            level *= 1.1 if prepared.job.image == SLOW and name == "m7" else 1.0
            values = [level * rng.lognormvariate(0, 0.002) for _ in range(10)]
            said.append({"type": "metric", "name": name, "unit": "ms", "values": values})
        self.jobs.append(([json.dumps(one).encode() + b"\n" for one in said], exited()))
        return super().start(prepared)


def observe():
    return HostObservation("healthy", "", {"state": "healthy"})


class Site:
    """A gate, and a host of its own."""

    def __init__(self, rooms, apart: float) -> None:
        self.rooms = rooms
        library = Library()
        library.workloads = {"wide": WIDE}
        library.suites = {"wide": Suite("wide", "much", ("wide",))}
        rooms.runs.catalogue = lambda: library
        rooms.runs.queue.register("w1", [host()])
        settings = Settings(heartbeat=5, poll=0.001)
        self.queue = rooms.runs.open_queue(settings)
        self.context = HostContext(
            queue=self.queue,
            executor=Processes(apart),
            gpu=GPU,
            driver=DRIVER,
            workloads=lambda suite: (WIDE,),
            reader=make_reader,
            judge=BaselineJudge(rooms.baselines, GPU),
            watch=lambda slots: nullcontext(observe),
            gpus=rooms.gate.facts.gpus,
            settings=settings,
        )

    def run(self, image: str, against: str = "history"):
        """Run the suite with an image; the run, and how it was judged."""
        asked = RunRequest("wide", stack=STACK, image=image, host="a100-1", against=against)
        (queued,) = self.rooms.runs.submit(asked, by="tester")
        before = len(self.context.executor.started)
        lease = self.queue.lease("w1", [host("a100-1")])
        drive(lease, self.context)
        names = [job.step for job in self.context.executor.started[before:]]
        pairs = sum(name.endswith("-A") for name in names)
        alone = len([name for name in names if "-pair" not in name])
        how = f"{pairs} pairs" if pairs else f"{alone} runs"
        return self.rooms.runs.get(queued.id), how

    def learn(self) -> None:
        """Learn from the first three runs, and approve what they propose."""
        for against in (REFERENCE, "history", "history"):
            self.run(BLESSED, against)
        rows = self.rooms.baselines.list(state="proposed", limit=100).items
        assert len(rows) == len(METRICS)
        for row in rows:
            self.rooms.baselines.approve(row.id, by="ana")
        # What is compared with the reference once names it for all later runs of the image.
        self.run(SLOW, REFERENCE)


def test_a_suite_of_52_metrics_learns_from_three_runs_and_decides(rooms) -> None:
    site = Site(rooms, 0.01)
    site.learn()
    unchanged = [site.run(BLESSED) for _ in range(12)]
    slower = [site.run(SLOW) for _ in range(12)]
    print(Counter(how for _, how in unchanged), Counter(how for _, how in slower))
    assert {run.state for run, _ in unchanged} == {"passed"}, [r.reason for r, _ in unchanged]
    assert {run.state for run, _ in slower} == {"failed"}, [r.reason for r, _ in slower]
    assert all("m7" in run.reason for run, _ in slower)
