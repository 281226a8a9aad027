"""A queue in memory and an executor that follows a script, at the engine's edges."""

import json
import threading

from compatgate.canary.engine import LeaseLost
from compatgate.canary.executors import Executor, Handle, PreparedJob, Status
from compatgate.canary.judge.workload import WorkloadJudgement
from compatgate.canary.run import Check, Device, Env, Metric, Report
from compatgate.canary.workload import ImageSpec, MetricSpec, Workload
from compatgate.errors import InfrastructureError

ENV = {"driver": "535.104.05", "gpu": "NVIDIA A100-SXM4-80GB", "versions": {"cuda": "12.4"}}
GEMM = Workload(
    name="gemm",
    description="multiplies",
    command=("gemm",),
    image=ImageSpec(inside=True),
    gpus=1,
    timeout_s=30,
    metrics={"time": MetricSpec(unit="ms", better="lower")},
)


def lines(*values, env=ENV, check=True):
    said = [{"env": env}] if env else []
    said += [{"time": value} for value in values]
    said += [{"check": check}]
    return [json.dumps(line).encode() + b"\n" for line in said]


class Reader:
    """Reads the scripts' own lines; the line protocol has tests of its own."""

    def __init__(self, workload):
        self._text = b""

    @property
    def progress(self):
        said = [json.loads(line) for line in self._text.splitlines() if line.endswith(b"}")]
        return next((line["progress"] for line in said[::-1] if "progress" in line), None)

    def feed(self, data):
        self._text += data

    def report(self):
        said = [json.loads(line) for line in self._text.splitlines()]
        env = next((line["env"] for line in said if "env" in line), None)
        return Report(
            env=env
            and Env(
                driver=env["driver"], gpus=(Device(env["gpu"]),), versions=dict(env["versions"])
            ),
            metrics=(Metric("time", "ms", tuple(line["time"] for line in said if "time" in line)),),
            checks=tuple(Check("sound", ok=line["check"]) for line in said if "check" in line),
        )


class Says:
    """A judge that says what it is told: a judgement for each look, the last one for the rest."""

    def __init__(self, *judged):
        self._judged = judged or (WorkloadJudgement("passed", ""),)
        self.offered = []

    def judge(self, workload, reports, suite=0, *, explained=""):
        return self._judged[min(len(reports), len(self._judged)) - 1]

    def offer(self, run, workload, step):
        self.offered.append((run, step.name))


class Script(Executor):
    """An executor whose jobs do what a list says: lines, then a status."""

    kind = "script"

    def __init__(self, *jobs):
        self.jobs = list(jobs)
        self.started = []
        self.alive = set()
        self.cleaned = []
        self.fail_prepare = None
        self.fail_clean = 0
        self.leftovers = set()
        self.is_away = False
        self.asked = 0

    def prepare(self, job, progress):
        if self.fail_prepare:
            raise self.fail_prepare
        progress(f"pulling for {job.step}", 0.5)
        return PreparedJob(job, "sha256:1")

    def start(self, prepared):
        job = prepared.job
        self.started.append(job)
        self.alive.add(job.step)
        return Handle(job.step, job.run, job.attempt, job.step, prepared.image)

    def output(self, handle, stop):
        what, _ = self.jobs[len(self.started) - 1]
        if what == "hang":
            while not stop():
                threading.Event().wait(0.005)
            return
        yield from what

    def status(self, handle):
        what, status = self.jobs[len(self.started) - 1]
        if what == "hang" and handle.id in self.alive:
            return Status("running")
        return status

    def kill(self, handle):
        self.alive.discard(handle.id)

    def clean(self, run):
        if self.fail_clean:
            self.fail_clean -= 1
            raise InfrastructureError("the engine is away")
        self.cleaned.append(run)
        return 0

    def left(self):
        self.asked += 1
        if self.is_away:
            raise InfrastructureError("the engine is away")
        return set(self.leftovers)


class Memory:
    """A queue that keeps what it is told."""

    def __init__(self, results=()):
        self.states = []
        self.said = []
        self.log = b""
        self.recorded = list(results)
        self.ended = None
        self.retried = None
        self.order = "go"
        self.lost = False
        self.compared = []
        self.earlier = []
        self.in_time = ""
        self.shares = []
        self.known = {}
        self.away = {}

    def _own(self):
        if self.lost:
            raise LeaseLost

    def renew(self, lease):
        self._own()
        return self.order

    def enter(self, lease, state):
        self._own()
        self.states.append(state)

    def say(self, lease, doing, progress, left_s=None):
        self.said.append(doing)
        self.shares.append((progress, left_s))

    def lengths(self, lease, steps):
        return self.known

    def write(self, lease, step, data):
        self.log += data

    def record(self, lease, result):
        self._own()
        self.recorded.append(result)

    def results(self, lease):
        return list(self.recorded)

    def compare(self, lease, pairs):
        self._own()
        self.compared.append(pairs)

    def report_host(self, host, away):
        self.away[host] = away

    def ended_in_time(self, lease, step, digest):
        return self.in_time

    def earlier_pairs(self, lease):
        return self.earlier

    def finish(self, lease, outcome, reason, evidence):
        self._own()
        self.ended = (outcome, reason, evidence)

    def retry(self, lease, reason):
        self.retried = reason


def exited(code=0, **also):
    return Status("exited", code, **also)
