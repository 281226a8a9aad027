"""A gate, staging hosts and workloads of a test's own, and workers as real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from engines import PYTHON, Engine
from msgspec.structs import replace
from sqlalchemy import update

from compatgate.canary.engine import Settings
from compatgate.canary.hosts import Host
from compatgate.canary.hosts_file import read_hosts
from compatgate.canary.run import ACTIVE
from compatgate.canary.worker import Worker, open_host
from compatgate.canary.workloads import Library
from compatgate.catalog.sources import ROOT
from compatgate.kit import clock
from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms
from compatgate.service.runs.queue.models import Run, RunRow
from compatgate.service.runs.queue.schemas import RunRequest
from compatgate.service.runs.queue.service import RunDetail

GPU, DRIVER = "A100-SXM4-80GB", "535.183.01"
STACK = {"cuda": "12.4"}
LEASE, PAUSE = 2.0, 0.2
"""Seconds; long enough for three heartbeats on a machine that is busy."""
SETTINGS = replace(Settings.patient(LEASE, PAUSE), lease=10 * LEASE)
"""Of a worker in this process: nobody kills it, and a busy machine may delay its heartbeats."""
T = TypeVar("T")
DYING = Path(__file__).with_name("dying_worker.py")

ENV = f"""\
import sys, time
sys.path.insert(0, "lib")
import canary_lines as say
say.env(driver="{DRIVER}", gpus=[{{"name": "NVIDIA {GPU}"}}], versions={{"cuda": "12.4.1"}})
"""
GOOD = ENV + 'say.check("right", True)\n'
HANGS = (
    ENV
    + """\
import signal
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
print("began", flush=True)
time.sleep(600)
"""
)

MANIFEST = """\
name = "{name}"
description = "Made for a test; the GPU that it reports is simulated"
command = ["python3", "program.py"]
gpus = {gpus}
timeout = "{timeout}"
{more}
[image]
inside = true

[limits]
memory = "128MiB"
shm = "16MiB"
tmp = "16MiB"
pids = 64
output = "1MiB"

[checks]
right = "it is right"
"""


def write_workload(
    folder: Path, name: str, program: str, *, gpus: int = 1, timeout: str = "60s", more: str = ""
) -> None:
    """Write a workload, and the suites that name it: one of its own name for each.

    Args:
        folder: of an operator's workloads.
        name: of the workload and its suite.
        program: text of ``program.py``.
        gpus: that it asks the engine for.
        timeout: as in ``workload.toml``.
        more: lines of ``workload.toml``, before its first table.
    """
    made = folder / name
    made.mkdir(parents=True, exist_ok=True)
    manifest = MANIFEST.format(name=name, gpus=gpus, timeout=timeout, more=more)
    (made / "workload.toml").write_text(manifest)
    (made / "program.py").write_text(program)
    suites = [
        f'[{each}]\ndescription = "of a test"\nworkloads = ["{each}"]\n'
        for each in sorted(path.parent.name for path in folder.glob("*/workload.toml"))
    ]
    (folder / "suites.toml").write_text("\n".join(suites))


def host_table(name: str, engine: Engine, **fields: Any) -> str:
    """A host of a ``hosts.toml``: a simulated A100 on an engine."""
    stated = {"name": name, "endpoint": engine.endpoint, "gpu": GPU, "driver": DRIVER}
    lines = []
    for field, value in {**stated, "health": "none", **fields}.items():
        if value is not None:
            lines.append(f"{field} = {value if isinstance(value, int) else repr(value)}")
    return "\n".join(["[[host]]", *lines, ""])


def until(found: Callable[[], T], seconds: float = 60.0) -> T:
    """What a question answers once it answers something true."""
    end = time.monotonic() + seconds
    while not (answer := found()):
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.05)
    return answer


def make_staging(rooms: Rooms, url: str, folder: Path, engine: Engine) -> Staging:
    """Return a gate's staging: a target of one pool, and the host ``stage`` with one slot."""
    pool = {"name": "a100", "gpu": GPU, "driver": DRIVER}
    policy = {"canary": {"require": True, "suites": ["good"]}}
    body = {"metadata": {"name": "prod"}, "spec": {"pools": [pool], "policy": policy}}
    rooms.matrix.create("Target", body, Authorship("tester", "to see what happens", force=True))
    made = Staging(rooms, url, folder)
    made.hosts(host_table("stage", engine))
    return made


class Staging:
    """Where a test's runs happen.

    Attributes:
        gate: on the test's database.
        url: of that database.
        folder: of hosts.toml and the workloads.
    """

    def __init__(self, rooms: Rooms, url: str, folder: Path) -> None:
        self.rooms = rooms
        self.url = url
        self.folder = folder
        self.workloads = folder / "workloads"
        self.hosts_file = folder / "hosts.toml"
        self.workloads.mkdir()
        rooms.runs.catalogue = self.library

    def library(self) -> Library:
        return Library.open([self.workloads])

    def hosts(self, *tables: str) -> list[Host]:
        """Declare the hosts, and make them known as a worker would."""
        self.hosts_file.write_text("\n".join(tables))
        hosts = read_hosts(self.hosts_file)
        self.rooms.runs.queue.register("declared", hosts)
        return hosts

    def workload(self, name: str, program: str, **fields: Any) -> None:
        """Write a workload; runs that are under way may go on with it, like those of 0.1.0."""
        write_workload(self.workloads, name, program, **fields)
        with self.rooms.gate.database.writing() as session:
            session.execute(update(Run).where(Run.finished_at.is_(None)).values(definition=None))

    def submit(self, suite: str, **fields: Any) -> str:
        """Ask for one run; its id."""
        asked = {"host": "stage", "stack": STACK, "image": PYTHON} | fields
        (run,) = self.rooms.runs.submit(RunRequest(suite, **asked), by="tester")
        return run.id

    def work(self, name: str = "here") -> None:
        """Work here, with the parts that a worker has, until nothing is left to run."""
        hosts = read_hosts(self.hosts_file)
        queue = self.rooms.runs.open_queue(SETTINGS)
        contexts = {
            host.name: open_host(
                host, queue, self.rooms.baselines, self.library, self.rooms.gate.facts, SETTINGS
            )
            for host in hosts
        }
        try:
            Worker(name, queue, hosts, contexts, idle=0.05).run(once=True)
        finally:
            for context in contexts.values():
                context.executor.close()

    def expire_leases(self) -> None:
        """Let the leases of all runs run out, as after a long silence of their workers."""
        past = clock.now() - timedelta(seconds=1)
        with self.rooms.gate.database.writing() as session:
            held = update(Run).where(Run.state.in_(ACTIVE))
            session.execute(held.values(lease_until=past))

    def work_until_ended(self, *runs: str) -> None:
        """Work here, also after pauses and when leases have run out, until runs have ended."""

        def ended() -> bool:
            self.work()
            return all(self.run(run).has_ended for run in runs)

        until(ended)

    @contextmanager
    def worker(
        self,
        *options: str,
        dies_after: str = "",
        lease: float = LEASE,
        hosts: Path | None = None,
        log: Path | None = None,
    ) -> Iterator[subprocess.Popen[str]]:
        """``compatgate worker``; killed at the end of the block if it still runs."""
        program = [str(DYING), dies_after] if dies_after else ["-m", "compatgate", "worker"]
        command = [
            sys.executable, *program, "--hosts", str(hosts or self.hosts_file),
            "--database", self.url,
            "--workloads", str(self.workloads), "--lease", str(lease), "--retry-pause", str(PAUSE),
            "--image", "*", *options,
        ]  # fmt: skip
        with (log or self.folder / "worker.log").open("a") as output:
            process = subprocess.Popen(command, stderr=output, text=True, env=_environment())
        try:
            yield process
        except BaseException:
            print((log or self.folder / "worker.log").read_text()[-6000:])
            raise
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()

    def run(self, run: str) -> RunRow:
        return self.rooms.runs.get(run)

    def show(self, run: str) -> RunDetail:
        return self.rooms.runs.show(run)

    def log(self, run: str) -> bytes:
        """Everything that the run's programs printed, of all attempts."""
        return b"".join(piece.data for piece in self.rooms.runs.output(run, limit=1000)[1])

    def await_state(self, run: str, *states: str) -> RunRow:
        def there() -> RunRow | None:
            found = self.run(run)
            return found if found.state in states else None

        return until(there)

    def await_output(self, run: str, text: bytes) -> None:
        until(lambda: text in self.log(run))

    def states(self, run: str) -> list[str]:
        """What the audit log says became of a run, oldest first."""
        links = self.rooms.audit.list_audit(action="run.", limit=1000).items
        return [link.action.removeprefix("run.") for link in reversed(links) if link.subject == run]


def _environment() -> Mapping[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith("COMPATGATE_") or k == ROOT}
