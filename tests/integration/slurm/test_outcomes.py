"""What becomes of programs on a real Slurm: they pass, fail, crash, hang, outgrow their memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from slurm_cluster import Cluster

from compatgate.canary.executors import Job, Status
from compatgate.canary.executors.slurm import SlurmExecutor
from compatgate.canary.protocol import make_reader
from compatgate.errors import BadInput, Conflict, NotFound

Make = Callable[..., Job]
Executors = Callable[..., SlurmExecutor]
Start = Callable[..., Any]

GOOD = """
import sys
sys.path.insert(0, "lib")
import canary_lines as say
say.env(driver="535.104.05", gpus=[{"name": "NVIDIA A100-SXM4-80GB"}], versions={"cuda": "12.2"})
say.metric("speed", "GB/s", [1.0, 2.0])
say.check("right", True)
print("log on standard error", file=sys.stderr)
"""


def test_a_program_runs_on_a_gpu_that_slurm_gave_it(
    executor: Executors, job: Make, start: Start
) -> None:
    look = (
        "\nimport os\nprint('GPUS', os.environ['SLURM_GPUS_ON_NODE'], os.environ['SLURM_JOB_GPUS'])"
    )
    started = start(executor(), job(GOOD + look))
    assert started.to_the_end() == Status("exited", 0)
    assert b"log on standard error" in started.output
    assert b"GPUS 1 0" in started.output
    reader = make_reader(started.job.workload)
    reader.feed(started.output)
    report = reader.report()
    assert report.problems == ()
    assert report.env is not None
    assert report.env.driver == "535.104.05"
    assert report.metrics[0].values == (1.0, 2.0)


@pytest.mark.parametrize(
    ("program", "exit_code"),
    [
        ("raise SystemExit(3)", 3),
        ("raise SystemExit(77)", 77),
        ("import ctypes; ctypes.string_at(0)", 139),
        ("import os; os.abort()", 134),
    ],
)
def test_a_crash_is_an_exit(
    executor: Executors, job: Make, start: Start, program: str, exit_code: int
) -> None:
    assert start(executor(), job(program)).to_the_end() == Status("exited", exit_code)


def test_a_program_that_slurm_kills_for_memory_says_so(
    executor: Executors, job: Make, start: Start
) -> None:
    started = start(executor(), job("import time; hog = b'x' * (400 << 20); time.sleep(60)"))
    status = started.to_the_end()
    assert status.oom_killed, status
    assert status.state == "exited"


def test_slurms_own_time_limit_is_a_timeout(
    slurm: Cluster, executor: Executors, job: Make, start: Start
) -> None:
    started = start(executor(), job("import time; time.sleep(600)"))
    started.until("running")
    slurm.ask("scontrol", "update", f"JobId={started.handle.id}", "EndTime=now+1seconds")
    # Slurm looks at limits every now and then.
    assert started.until("timeout", patience=90).reason == "Slurm ended it at its time limit"


def test_what_is_left_of_a_program_ends_with_it(
    slurm: Cluster, executor: Executors, job: Make, start: Start
) -> None:
    program = """
import subprocess
child = subprocess.Popen(["/bin/sleep", "613"], start_new_session=True)
print(child.pid, flush=True)
"""
    started = start(executor(), job(program))
    assert started.to_the_end() == Status("exited", 0)
    started.executor.clean(started.job.run)
    assert not _alive(int(started.output))


def test_output_is_streamed_while_the_program_runs(
    executor: Executors, job: Make, start: Start
) -> None:
    started = start(executor(), job("import time; print('first', flush=True); time.sleep(600)"))
    started.to_the_end(lambda: b"first" in started.output)
    assert started.output == b"first\n"


def test_a_flood_of_output_is_bounded_and_seen_as_such(
    slurm: Cluster, executor: Executors, job: Make, start: Start
) -> None:
    program = "import sys\nfor _ in range(200): sys.stdout.write('x' * 65535 + chr(10))\n"
    started = start(executor(), job(GOOD + program))
    assert started.to_the_end() == Status("exited", 0)
    assert len(started.output) < 3 << 20
    reader = make_reader(started.job.workload)
    reader.feed(started.output)
    assert reader.report().truncated


def test_no_field_reaches_a_shell(executor: Executors, job: Make, start: Start) -> None:
    evil = '\'; echo $(id) `id` "$HOME" \\ & #'
    program = "import os, sys; print(sys.argv[1:], [os.environ['EVIL']])"
    made = job(
        program, command=("/usr/bin/python3", "program.py", evil), environment={"EVIL": evil}
    )
    started = start(executor(), made)
    assert started.to_the_end() == Status("exited", 0)
    assert started.output.decode() == f"{[evil]} {[evil]}\n"


def test_the_workers_secrets_do_not_travel(
    executor: Executors, job: Make, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPATGATE_TOKEN", "secret-token")
    started = start(executor(), job("import os; print(dict(os.environ))"))
    started.to_the_end()
    assert b"SLURM_JOB_ID" in started.output
    assert b"secret" not in started.output


def test_a_job_is_started_once(executor: Executors, job: Make, start: Start) -> None:
    made, on = job("pass"), executor()
    start(on, made)
    with pytest.raises(Conflict, match="started before"):
        start(on, made)


def test_a_command_that_the_node_has_not_is_an_error_of_its_own(
    executor: Executors, job: Make, start: Start
) -> None:
    started = start(executor(), job("", command=("./no-such-program",)))
    with pytest.raises(NotFound, match=r"no-such-program is not there"):
        started.until("exited")


@pytest.mark.parametrize(
    ("fields", "workload", "match"),
    [
        ({"partition": "nowhere"}, {}, r"(?i)invalid partition.*sinfo"),
        ({"constraint": "h100"}, {}, r"(?i)invalid feature|not available"),
        ({"gres": "gpu:h100"}, {}, r"(?i)not available"),
        ({}, {"gpus": 2}, r"(?i)not available.*enough GPUs"),
        ({"extra": ("--reservation=none",)}, {}, r"(?i)reservation"),
        ({"gres": None}, {}, "names no GRES"),
    ],
)
def test_what_slurm_will_never_run_is_refused_at_once(
    executor: Executors,
    job: Make,
    start: Start,
    fields: dict[str, Any],
    workload: dict[str, Any],
    match: str,
) -> None:
    with pytest.raises(BadInput, match=match):
        start(executor(**fields), job("pass", **workload))


def test_a_job_that_would_wait_for_ever_is_an_error(
    executor: Executors, job: Make, start: Start
) -> None:
    started = start(executor(partition="short"), job("pass", timeout_s=3600))
    with pytest.raises(BadInput, match=r"never run the job.*PartitionTimeLimit"):
        started.until("exited")


def test_several_nodes_run_one_program_and_the_first_ones_lines_count(
    executor: Executors, job: Make, start: Start
) -> None:
    program = """
import os, sys
names = ("COMPATGATE_NODE", "COMPATGATE_NODES", "MASTER_ADDR", "MASTER_PORT")
print("node", *(os.environ[name] for name in names), flush=True)
"""
    made = job(program, nodes=2)
    started = start(executor(), made)
    assert started.to_the_end() == Status("exited", 0)
    folder = started.executor._work.of(made)
    port = 20000 + int(started.handle.id) % 20000
    assert (folder / "output").read_text() == f"node 0 2 n1 {port}\n"
    assert (folder / "errors").read_text() == f"node 1 2 n1 {port}\n"


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
