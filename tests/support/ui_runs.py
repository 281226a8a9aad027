"""Genuine canary runs for the pages: a worker runs programs as processes; the GPU is made up."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from hashlib import sha256
from itertools import count
from pathlib import Path
from platform import python_version
from threading import Thread
from time import sleep
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import msgspec
from sqlalchemy import text

from compatgate.canary.engine import HostContext, Lease, Queue, Settings
from compatgate.canary.engine.drive import drive
from compatgate.canary.health import Gpu, Snapshot, judge_health, read_log
from compatgate.canary.hosts import Host, MaintenanceWindow
from compatgate.canary.run import StepResult
from compatgate.canary.worker import Worker, open_host
from compatgate.canary.workloads import Library
from compatgate.kit import clock
from compatgate.service.app import Rooms
from compatgate.service.runs.queue import submission
from compatgate.service.runs.queue.schemas import RunRequest

GPU, DRIVER = "A100-SXM4-80GB", "535.183.01"
STACK = {"cuda": "12.4", "cudnn": "9.1.0", "torch": "2.4.1+cu124"}
STAGE = Host("staging-a100", executor="process", gpu=GPU, driver=DRIVER, slots=2, health="none")
BUILDER = Host("builder-1", executor="process", health="none", slots=4)
AWAY = Host(
    "staging-l4",
    gpu="L4",
    driver="550.54.15",
    quiet=(
        MaintenanceWindow("20:00", "06:00", ("mon", "tue", "wed", "thu", "fri"), "Europe/Berlin"),
    ),
)
HOSTILE = (
    b'<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>\n'
    b"\x1b[31mred\x1b[0m \x1b]0;title\x07 \x1b[2Jcleared\n"
    b"nul:\x00 bad utf-8:\xff\xfe bidi:\xe2\x80\xaegnp.exe bell:\x07\n"
    b"10 %\r50 %\r100 %\n" + b"long " + b"x" * 20_000 + b"\n"
)
_MANIFEST = """\
name = "conv-forward"
description = "Convolutions of a fixed network, forward: speed and results (the GPU is simulated)"
catches = ["kernels that became slower after an update of cuDNN", "wrong results"]
command = ["python3", "program.py", "--seed", "{seed}"]
gpus = 1
timeout = "60s"

[image]
inside = true

[limits]
memory = "128MiB"
shm = "16MiB"
tmp = "16MiB"
pids = 64
output = "1MiB"

[metrics.step-time]
unit = "ms"
better = "lower"
tolerance = 0.05
repetitions = 30
description = "one forward pass, batch 64"

[metrics.throughput]
unit = "images/s"
better = "higher"
tolerance = 0.05
repetitions = 30
description = "images in a second"

[checks]
right = "results are those of the CPU, within rounding"
"""
_PROGRAM = f"""\
import json, os, pathlib, random, sys, time
sys.path.insert(0, "lib")
import canary_lines as say
now = json.loads(os.environ.get("SCENARIO") or pathlib.Path("@SCENARIO@").read_text())
draw = random.Random(now["seed"])
say.env(driver="{DRIVER}", gpus=[{{"name": "NVIDIA {GPU}"}}], versions=now["versions"])
say.progress(0.53)
time.sleep(now.get("hold", 0))
print("warming up on", "{GPU}")
times = [now["ms"] * draw.lognormvariate(0, 0.008) for _ in range(40)]
say.metric("step-time", "ms", times)
say.metric("throughput", "images/s", [64000 / t for t in times])
off = "" if now["right"] else "3 of 4096 values are off by more than 1e-3"
say.check("right", now["right"], off)
say.progress(1.0)
print("done")
"""
_SUITES = """\
[conv-only]
description = "Convolutions alone, one GPU"
workloads = ["conv-forward"]
"""
_MEASURED = {"cuda": "12.4.1", "cudnn": "9.1.0.70", "torch": "2.4.1+cu124"}
_XID = (
    b"[  812.104533] NVRM: Xid (PCI:0000:07:00): 79, pid=4242, name=python3, "
    b"GPU has fallen off the bus.\n"
)


def make_scenario(**changes: Any) -> str:
    """Return what the next program measures, for the file or for ``SCENARIO`` of an image."""
    usual = {"seed": 20, "ms": 7.96, "right": True, "versions": _MEASURED}
    return json.dumps(usual | changes)


class Runs:
    """Makes runs on a gate's database.

    Args:
        gate: whose catalogue is set to the shipped workloads and one more.
        folder: of that workload; ``COMPATGATE_WORKLOADS`` of a server on the same database.
    """

    def __init__(self, rooms: Rooms, folder: Path) -> None:
        self.rooms, self.folder = rooms, folder
        made = folder / "conv-forward"
        made.mkdir(parents=True, exist_ok=True)
        (made / "workload.toml").write_text(_MANIFEST)
        program = _PROGRAM.replace("@SCENARIO@", str(folder / "scenario.json"))
        (made / "program.py").write_text(program)
        (folder / "suites.toml").write_text(_SUITES)
        library = Library.open([folder])
        rooms.runs.catalogue = lambda: library

    def submit(self, suite: str = "conv-only", **fields: Any) -> str:
        """Ask for one run; its id."""
        asked: dict[str, Any] = {"target": "prod-a100", "stack": STACK, **fields}
        (run,) = self.rooms.runs.submit(RunRequest(suite, **asked), by="mara")
        return run.id

    def ran(self, seed: int, ms: float = 8.0, *, right: bool = True, **versions: str) -> str:
        """A run of `conv-only` that has ended, measured as the scenario says."""
        run = self._prepare(seed, ms, right, versions)
        for _ in range(10):
            self.work(STAGE)
            found = self.rooms.runs.get(run)
            if found.has_ended:
                return run
            sleep(0.2)  # a busy machine failed it, and it is to be tried again
        raise AssertionError(f"{run} is {found.state}: {found.reason}")

    def ran_hello(self) -> None:
        """A run of the shipped `hello` suite, on the CPU."""
        stack = {"python": python_version()}
        self.submit("hello", stack=stack, target=None, host=BUILDER.name)
        self.work(BUILDER)

    def _prepare(
        self, seed: int, ms: float, right: bool, versions: dict[str, str], **fields: Any
    ) -> str:
        """Ask for a run that will measure this."""
        scenario = {"seed": seed, "ms": ms, "right": right, "versions": _MEASURED | versions}
        (self.folder / "scenario.json").write_text(json.dumps(scenario))
        stack = STACK | {k: v for k, v in versions.items() if k in STACK}
        return self.submit(stack=stack, **fields)

    def work(self, *hosts: Host) -> None:
        """Let a worker run whatever waits for these hosts."""
        with self._worker(*hosts) as worker:
            worker.run(once=True)

    @contextmanager
    def _worker(self, *hosts: Host) -> Iterator[Worker]:
        with self._contexts(*hosts) as (queue, contexts):
            yield Worker("stage-worker", queue, hosts, contexts, idle=0.05)

    @contextmanager
    def _contexts(self, *hosts: Host) -> Iterator[tuple[Queue, dict[str, HostContext]]]:
        settings = Settings(heartbeat=5.0, lease=30.0, pauses=(0.1,), poll=0.05, repeats=1)
        queue = self.rooms.runs.open_queue(settings)
        library, facts = self.rooms.runs.catalogue, self.rooms.gate.facts
        contexts = {
            host.name: open_host(host, queue, self.rooms.baselines, library, facts, settings)
            for host in hosts
        }
        try:
            yield queue, contexts
        finally:
            for context in contexts.values():
                context.executor.close()

    @contextmanager
    def taking(self, run: str, host: Host = STAGE, **scenario: Any) -> Iterator[None]:
        """A worker that has this run, and no other; at the end it has ended or waits again."""
        (self.folder / "scenario.json").write_text(make_scenario(**scenario))
        with self.rooms.gate.database.writing() as session:
            session.execute(text("UPDATE runs SET priority = 100 WHERE id = :id"), {"id": run})
        with self._contexts(host) as (queue, contexts):
            for _ in range(100):
                lease = queue.lease("stage-worker", [host])
                if lease:
                    break
                sleep(0.1)  # a run that failed waits before its next attempt
            assert lease is not None
            assert lease.run.id == run
            thread = Thread(target=drive, args=(lease, contexts[host.name]))
            thread.start()
            try:
                yield
            finally:
                thread.join()

    def declare_hosts(self) -> None:
        """Declare the staging hosts, as their worker does."""
        self.rooms.runs.queue.register("stage-worker", [STAGE, BUILDER, AWAY])

    def begin(self, **fields: Any) -> Lease:
        """A run that a worker has, and that goes on until the test ends it."""
        run = self.submit(priority=100, **fields)
        lease = self.rooms.runs.queue.lease("stage-worker", [STAGE])
        assert lease is not None
        assert lease.run.id == run
        self.rooms.runs.queue.enter(lease, "running")
        self.rooms.runs.queue.say(lease, "conv-forward-0: 24 of 40 repetitions", 0.6)
        return lease

    def sick(self) -> str:
        """A run during which the GPU fell off the bus, as a worker with a look-out tells it."""
        lease = self.begin()
        gpu = Gpu(0, uuid="GPU-1", pci="0000:07:00", name=f"NVIDIA {GPU}")
        seen = Snapshot(clock.now(), DRIVER, (gpu,))
        errors, _ = read_log(io.BytesIO(_XID), self.rooms.gate.facts.xid)
        health = judge_health(seen, [], None, errors.events())
        assert health is not None
        reason = "; ".join(health.reasons)
        queue, now = self.rooms.runs.queue, clock.now()
        queue.write(lease, "conv-forward-0", HOSTILE)
        queue.record(
            lease,
            StepResult(
                "conv-forward-0", "conv-forward", 0, "inconclusive", reason,
                exit_code=1, health=msgspec.to_builtins(health), started_at=now, finished_at=now,
            ),
        )  # fmt: skip
        queue.finish(lease, "inconclusive", f"conv-forward-0: {reason}", None)
        return lease.run.id


def fill_runs(rooms: Rooms, folder: Path) -> None:
    """Runs of every kind over some days, an approved baseline and a newer one that is proposed."""
    runs = Runs(rooms, folder)
    names = count(1)
    fixed = SimpleNamespace(token_hex=lambda _: _id(next(names)).removeprefix("run_"))
    with patch.object(submission, "secrets", fixed):
        runs.declare_hosts()
        for day in (9, 8, 7):
            with days_ago(day):
                runs.ran(day)
        with days_ago(6.5):
            for row in rooms.baselines.list(state="proposed").items:
                rooms.baselines.approve(row.id, by="mara")
        with days_ago(6):
            runs.ran(10, 7.95)
        with days_ago(3):
            runs.ran(11, 9.0, cudnn="9.1.1.17")
        with days_ago(2):
            runs.ran(12, 8.02, right=False)
        with days_ago(1):
            runs.sick()
        for day in (0.4, 0.3, 0.2):
            with days_ago(day):
                runs.ran_hello()
        runs.submit(priority=5)
    for minutes in range(200, 20, -10):  # a run that other work slowed is not learned from
        if all(row.learnt_from >= 3 for row in rooms.baselines.list(state="proposed").items):
            break
        with days_ago(minutes / 1440):
            runs.ran_hello()
    runs.declare_hosts()


def _id(number: int) -> str:
    return f"run_{sha256(str(number).encode()).hexdigest()[:16]}"


PASSED, SLOWER, WRONG, SICK, CPU = map(_id, range(4, 9))
QUEUED = _id(11)
"""Ids of runs after the first three, in the order in which they are made."""


@contextmanager
def days_ago(days: float) -> Iterator[None]:
    """The clock goes on from a moment in the past."""
    now, shift = clock.now, timedelta(days=days)
    with patch.object(clock, "now", lambda: now() - shift):
        yield
