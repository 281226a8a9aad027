"""Workloads as bare processes: limits, output, and that nothing is left of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compatgate.canary.executors import Handle, Job, Status, process
from compatgate.canary.executors.process import ProcessExecutor
from compatgate.canary.workload import Limits
from compatgate.errors import BadInput, Conflict, NotFound

Make = Callable[..., Job]
TREE = """
import os, time
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
print("began", flush=True)
time.sleep({})
"""


def _quiet(doing: str, share: float | None) -> None:
    pass


def _start(process: ProcessExecutor, job: Job) -> Handle:
    return process.start(process.prepare(job, _quiet))


def _alive(run: str) -> list[int]:
    """Processes of a run; the launcher takes a moment to go after it has said the end."""
    deadline = time.monotonic() + 2
    while (found := [*process.find_marked(f"{run}/").values()]) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def test_a_program_runs_in_its_folder_with_few_variables(
    process: ProcessExecutor, job: Make, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPATGATE_TOKEN", "secret")
    monkeypatch.setenv("HTTPS_PROXY", "http://user:secret@proxy")
    program = """
import os, sys
print(sorted(os.listdir(".")), "secret" in str(os.environ), os.environ["CUDA_VISIBLE_DEVICES"])
print("warning", file=sys.stderr)
open(os.path.join(os.environ["TMPDIR"], "x"), "w")
raise SystemExit(3)
"""
    ran = run(process, job(program, image=None, gpu_slots=(2,), environment={"A": "b"}))
    assert ran.status == Status("exited", 3)
    assert sorted(ran.output.splitlines()) == [b"['lib', 'program.py'] False 2", b"warning"]
    assert process.development


def test_nothing_of_a_program_outlives_it(process: ProcessExecutor, job: Make) -> None:
    made = job(TREE.format(0), image=None)
    handle = _start(process, made)
    assert b"".join(process.output(handle, lambda: False)) == b"began\n"
    assert process.status(handle) == Status("exited", 0)
    assert _alive(made.run) == []
    assert process.clean(made.run) == 1
    assert not Path(handle.id).exists()


def test_a_program_gains_no_privileges(
    process: ProcessExecutor, job: Make, run: Callable[..., Any]
) -> None:
    program = "print([l for l in open('/proc/self/status') if l.startswith('NoNewPrivs')])"
    assert run(process, job(program, image=None)).output == b"['NoNewPrivs:\\t1\\n']\n"


def test_a_hang_is_killed_with_everything_that_it_started(
    process: ProcessExecutor, job: Make
) -> None:
    made = job(TREE.format(600), image=None)
    handle = _start(process, made)
    until = time.monotonic() + 1
    list(process.output(handle, lambda: time.monotonic() > until))
    assert process.status(handle) == Status("running")
    process.kill(handle)
    process.kill(handle)
    assert process.status(handle) == Status("exited", 137, reason="killed")
    assert _alive(made.run) == []
    process.clean(made.run)


def test_memory_beyond_the_limit_ends_it(
    process: ProcessExecutor, job: Make, run: Callable[..., Any]
) -> None:
    program = "import time; x = bytearray(300 << 20); time.sleep(60)"
    ran = run(process, job(program, image=None))
    assert ran.status == Status("exited", 137, oom_killed=True, reason="out of memory")


def test_too_many_processes_end_it(
    process: ProcessExecutor, job: Make, run: Callable[..., Any]
) -> None:
    program = "import os, time\nfor _ in range(30): os.fork() or time.sleep(60)\ntime.sleep(60)"
    ran = run(process, job(program, image=None, limits=Limits(pids=10, memory=1 << 30)))
    assert ran.status == Status("exited", 137, reason="more than 10 processes")


def test_a_flood_is_bounded_on_disk(
    process: ProcessExecutor, job: Make, run: Callable[..., Any]
) -> None:
    program = "for _ in range(100_000): print('x' * 999)"
    ran = run(process, job(program, image=None))
    assert ran.status == Status("exited", 0)
    assert ran.report.truncated
    assert len(ran.output) == 2 << 20


def test_a_crash_by_a_signal_is_an_exit_as_shells_count(
    process: ProcessExecutor, job: Make, run: Callable[..., Any]
) -> None:
    ran = run(process, job("import os; os.abort()", image=None))
    assert ran.status == Status("exited", 134)


def test_a_step_is_started_once(process: ProcessExecutor, job: Make) -> None:
    prepared = process.prepare(job("", image=None), _quiet)
    process.start(prepared)
    with pytest.raises(Conflict):
        process.start(prepared)
    process.clean(prepared.job.run)


def test_images_and_unknown_programs_are_refused(process: ProcessExecutor, job: Make) -> None:
    with pytest.raises(BadInput, match="does not run images"):
        process.prepare(job(""), _quiet)
    with pytest.raises(NotFound, match="cannot run 'no-such-program'"):
        process.prepare(job("", image=None, command=("no-such-program",)), _quiet)


@pytest.mark.parametrize("victim", ["worker", "launcher"])
def test_a_worker_or_launcher_that_is_killed_leaves_nothing(
    process: ProcessExecutor, job: Make, victim: str
) -> None:
    made = job(TREE.format(600), image=None)
    folder = made.workload.folder
    worker = subprocess.Popen(
        [sys.executable, "-c", _WORKER, made.run, str(folder)], stdout=subprocess.PIPE
    )
    assert worker.stdout
    handle = Handle(worker.stdout.readline().decode().strip(), made.run, 1, "made-0", "process")
    assert process.status(handle).state == "running"
    if victim == "launcher":
        import json

        launcher = json.loads((Path(handle.id) / "launcher.json").read_text())["pid"]
        os.kill(launcher, signal.SIGKILL)
    worker.kill()
    worker.wait()
    deadline = time.monotonic() + 10
    while process.status(handle).state == "running" and time.monotonic() < deadline:
        time.sleep(0.05)
    if victim == "worker":
        assert process.status(handle).reason == "the worker is gone"
        assert _alive(made.run) == []
    else:
        assert process.status(handle).state == "lost"
    process.clean(made.run)
    assert _alive(made.run) == []
    assert not Path(handle.id).exists()


_WORKER = """
import sys, time
from pathlib import Path
from compatgate.canary.executors import Job
from compatgate.canary.executors.process import ProcessExecutor
from compatgate.canary.hosts import Host
from compatgate.canary.workload import ImageSpec, Workload
folder = Path(sys.argv[2])
workload = Workload("made", "", ("python3", "program.py"), ImageSpec(True), folder=folder)
executor = ProcessExecutor(Host("laptop", executor="process"))
job = Job(sys.argv[1], 1, "made-0", workload)
handle = executor.start(executor.prepare(job, lambda *_: None))
for piece in executor.output(handle, lambda: False):
    break
print(handle.id, flush=True)
time.sleep(600)
"""
