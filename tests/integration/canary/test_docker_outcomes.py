"""What becomes of programs in containers: they pass, fail, crash, hang, run out of memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from engines import PYTHON, Engine

from compatgate.canary.executors import Job, Status
from compatgate.canary.executors.docker import DockerExecutor
from compatgate.canary.run import Check
from compatgate.canary.workloads.library import read_workload
from compatgate.errors import Conflict, NotFound
from compatgate.resources import canary_dir

Make = Callable[..., Job]

GOOD = """
import sys
sys.path.insert(0, "lib")
import canary_lines as say
say.env(driver="535.104.05", gpus=[{"name": "NVIDIA A100-SXM4-80GB"}], versions={"cuda": "12.2"})
say.metric("speed", "GB/s", [1.0, 2.0])
say.check("right", True)
print("log on standard error", file=sys.stderr)
"""


def test_a_program_runs_with_the_shared_modules_and_its_lines_are_read(
    docker: DockerExecutor, job: Make, run: Callable[..., object]
) -> None:
    ran = run(docker, job(GOOD))
    assert ran.status == Status("exited", 0)
    assert ran.report.problems == ()
    assert ran.report.env.driver == "535.104.05"
    assert ran.report.metrics[0].values == (1.0, 2.0)
    assert b"log on standard error" in ran.output


def test_the_shipped_hello_cpu_passes_in_a_container(
    docker: DockerExecutor, run: Callable[..., object]
) -> None:
    workload = read_workload(canary_dir() / "hello-cpu")
    ran = run(docker, Job("run_hello", 1, "hello-cpu-7", workload, seed=7, image=PYTHON))
    assert ran.status == Status("exited", 0)
    assert ran.report.problems == ()
    assert {check.name for check in ran.report.checks} == set(workload.checks)
    assert all(check.ok for check in ran.report.checks)
    assert len(ran.report.metrics[0].values) == 30


def test_the_seed_is_in_the_command_and_in_the_environment(
    docker: DockerExecutor, job: Make, run: Callable[..., object]
) -> None:
    program = "import os, sys; print(sys.argv[1:], os.environ['COMPATGATE_SEED'])"
    made = job(program, command=("python3", "program.py", "--seed", "{seed}"))
    ran = run(docker, Job(made.run, 1, "s", made.workload, seed=41, image=made.image))
    assert ran.output == b"['--seed', '41'] 41\n"


def test_a_failing_check_is_reported(
    docker: DockerExecutor, job: Make, run: Callable[..., object]
) -> None:
    ran = run(docker, job(GOOD.replace('"right", True', '"right", False, "off by one"')))
    assert ran.report.checks == (Check("right", False, "off by one"),)


@pytest.mark.parametrize(
    ("program", "exit_code"),
    [
        ("raise SystemExit(3)", 3),
        ("import ctypes; ctypes.string_at(0)", 139),
        ("import os; os.abort()", 134),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", 139),
    ],
)
def test_a_crash_is_an_exit(
    docker: DockerExecutor,
    job: Make,
    run: Callable[..., object],
    program: str,
    exit_code: int,
) -> None:
    # As the first process of its container a program is not killed by its own signal.
    wrapped = ("sh", "-c", "python3 program.py; exit $?")
    ran = run(docker, job(program, command=wrapped))
    assert ran.status == Status("exited", exit_code)


def test_a_hang_is_left_when_asked_to_stop_and_killed(
    docker: DockerExecutor, job: Make, run: Callable[..., object]
) -> None:
    program = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("began", flush=True)
time.sleep(600)
"""
    ran = run(docker, job(program), until=b"began\n")
    assert ran.output == b"began\n"
    assert ran.status == Status("running")
    docker.kill(ran.handle)
    docker.kill(ran.handle)
    assert docker.status(ran.handle) == Status("exited", 137, reason="killed")


def test_running_out_of_memory_is_told_from_a_crash(
    docker: DockerExecutor, job: Make, run: Callable[..., object]
) -> None:
    ran = run(docker, job("x = []\nwhile True: x.append(bytes(1 << 20))"))
    assert ran.status == Status("exited", 137, oom_killed=True, reason="out of memory")


def test_a_child_that_runs_out_of_memory_is_seen(
    docker: DockerExecutor, job: Make, run: Callable[..., object]
) -> None:
    program = """
import subprocess, sys
child = "x = []\\nwhile True: x.append(bytearray(1 << 20))"
raise SystemExit(subprocess.run([sys.executable, "-c", child]).returncode != 0)
"""
    ran = run(docker, job(program))
    assert ran.status.exit_code == 1
    assert ran.status.oom_killed


def test_a_flood_of_output_is_bounded(
    docker: DockerExecutor, job: Make, run: Callable[..., object], gpu_engine: Engine
) -> None:
    program = (
        GOOD
        + """
import time
sys.stdout.flush()
time.sleep(2)  # what came before the flood has been read: the engine keeps the last 8 MB only
line = "x" * 999 + "\\n"
for _ in range(100_000):
    sys.stdout.write(line)
"""
    )
    ran = run(docker, job(program))
    assert ran.status == Status("exited", 0)
    assert ran.report.truncated
    assert ran.report.dropped_bytes > 1_000_000
    assert ran.report.checks == (Check("right", True),)
    logs = gpu_engine.folder / "data" / "containers" / ran.handle.id / "local-logs"
    assert sum(file.stat().st_size for file in logs.iterdir()) < 9 << 20


def test_short_lines_that_the_engine_may_have_lost_are_never_passed_over(
    docker: DockerExecutor, job: Make, run: Callable[..., object]
) -> None:
    program = GOOD + "\nfor _ in range(400_000): sys.stdout.write('\\n')\n"
    ran = run(docker, job(program))
    assert not ran.report.truncated
    assert "lines may be missing" in ran.report.problems[0]


def test_output_that_is_not_utf8_is_log_and_stays_as_it_is(
    docker: DockerExecutor, job: Make, run: Callable[..., object]
) -> None:
    program = (
        GOOD
        + """
sys.stdout.flush()
sys.stdout.buffer.write(b"\\xff\\xfe\\x00 not text\\n")
sys.stdout.buffer.write(b'{"type": "check", "name": "right\\xff", "ok": true}\\n')
"""
    )
    ran = run(docker, job(program))
    assert b"\xff\xfe\x00 not text\n" in ran.output
    (problem,) = ran.report.problems
    assert "not UTF-8" in problem


def test_long_lines_of_both_streams_do_not_cut_into_each_other(
    docker: DockerExecutor, job: Make, run: Callable[..., object]
) -> None:
    program = """
import sys, threading
def write(stream, letter):
    for _ in range(20):
        stream.write(letter * 40_000 + "\\n"); stream.flush()
threads = [threading.Thread(target=write, args=a) for a in ((sys.stdout, "o"), (sys.stderr, "e"))]
[t.start() for t in threads]; [t.join() for t in threads]
"""
    lines = run(docker, job(program)).output.splitlines()
    assert sorted(lines) == [b"e" * 40_000] * 20 + [b"o" * 40_000] * 20


def test_output_can_be_read_again_from_the_beginning(
    docker: DockerExecutor, job: Make, run: Callable[..., object]
) -> None:
    ran = run(docker, job(GOOD))
    assert b"".join(docker.output(ran.handle, lambda: False)) == ran.output


def test_a_step_is_started_once(docker: DockerExecutor, job: Make) -> None:
    prepared = docker.prepare(job("import time; time.sleep(60)"), lambda *_: None)
    docker.start(prepared)
    with pytest.raises(Conflict):
        docker.start(prepared)
    docker.clean(prepared.job.run)


def test_a_command_that_the_image_lacks_is_named(
    docker: DockerExecutor, job: Make, run: Callable[..., object]
) -> None:
    with pytest.raises(NotFound, match="the image cannot run 'nvcc'"):
        run(docker, job("", command=("nvcc", "--version")))


def test_the_shipped_libraries_loaded_reports_from_within_a_container(
    docker: DockerExecutor, run: Callable[..., object]
) -> None:
    workload = read_workload(canary_dir() / "libraries-loaded")
    ran = run(docker, Job("run_loaded", 1, "libraries-loaded-0", workload, image=PYTHON))
    assert ran.status == Status("exited", 0)
    assert ran.report.problems == ()
    assert {check.name for check in ran.report.checks} == set(workload.checks)
    # The image has no CUDA: that is what the workload is to find out.
    assert [check.name for check in ran.report.checks if not check.ok] == ["loaded"]
