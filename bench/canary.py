"""A canary run on a Docker engine against plain ``docker run`` of the same image, in turn."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from compatgate.canary.executors import Job
from compatgate.canary.executors.docker import DockerExecutor
from compatgate.canary.hosts import Host
from compatgate.canary.protocol import read_report
from compatgate.canary.workloads import read_workload
from compatgate.resources import canary_dir

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from engines import PYTHON, Engine, engine, missing

RUNS = 10
SKIPPED = "| (skipped: {}) | - | - | - | - |"


def main() -> list[str]:
    """A Markdown row: seconds of a run, of ``docker run``, their ratio and difference."""
    lacking = missing() or ("" if shutil.which("docker") else "no docker command")
    if lacking:
        return [SKIPPED.format(lacking)]
    with engine() as running:
        pairs = [(_canary(running, n), _plain(running)) for n in range(RUNS)][1:]
    ours, plain = (statistics.median(column) for column in zip(*pairs, strict=True))
    return [
        f"| hello-cpu | {ours:.2f} | {plain:.2f} | {ours / plain:.2f} x | {ours - plain:+.2f} s |"
    ]


def _canary(running: Engine, number: int) -> float:
    workload = read_workload(canary_dir() / "hello-cpu")
    executor = DockerExecutor(Host("bench", endpoint=running.endpoint))
    job = Job(f"run_bench_{number}", 1, "hello-cpu-0", workload, image=PYTHON)

    def run() -> None:
        handle = executor.start(executor.prepare(job, lambda *_: None))
        report = read_report(executor.output(handle, lambda: False), workload)
        if executor.status(handle).exit_code or report.problems:
            raise SystemExit(f"hello-cpu did not pass: {report}")
        executor.clean(job.run)

    return _seconds(run)


def _plain(running: Engine) -> float:
    folder = canary_dir()
    command = [
        "docker", "--host", running.endpoint, "run", "--rm", "--network", "none",
        "--volume", f"{folder}:/canary:ro", "--tmpfs", "/tmp", PYTHON,
        "python3", "/canary/hello-cpu/program.py", "--seed", "0",
    ]  # fmt: skip
    return _seconds(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))


def _seconds(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


if __name__ == "__main__":
    print(*main(), sep="\n")
