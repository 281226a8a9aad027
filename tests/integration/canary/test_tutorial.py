"""The workload of docs/tutorial/write-a-canary.md is whole, and goes the whole way of the page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import prepared
import pytest
from canary_programs import NOTHING_TO_TEST, torch_python
from staging import until

from compatgate.canary.protocol import read_report
from compatgate.canary.workloads.library import read_workload
from compatgate.canary.workloads.lint import lint_workloads
from compatgate.resources import canary_dir

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "tutorial" / "write-a-canary.md").read_text()
STEADY = """
import random, sys
sys.path.insert(0, "lib")
import canary_lines as say


def softmax():
    return torch.softmax(rows, dim=1)


calls = open(__file__).read().count("torch.softmax(rows") - 1
values = random.Random(1).gauss
say.env(driver=None, gpus=[], versions={"torch": "2.4.1+cu124", "cuda": "12.4"})
say.metric("softmax", "GB/s", [100.0 / calls + values(0, 0.1) for _ in range(40)])
say.check("right", True)
say.check("repeatable", True)
"""
"""Reports what the page's program does, half as fast with a second call, without any noise."""


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def commands(block: str) -> list[tuple[str, int]]:
    """Commands, and the exit status that the page gives each."""
    found = []
    for line in re.findall(r"^\$ (.*)$", block, re.MULTILINE):
        command, _, remark = line.partition("#")
        status = re.match(r"\s*(?:exit status )?(\d)\b", remark)
        found.append((command.strip(), int(status[1]) if status else 0))
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The files as the page has them."""
    manifest, program = blocks("toml")[0], blocks("python")[0]
    made = tmp_path / "long-softmax"
    made.mkdir()
    (made / "workload.toml").write_text(manifest)
    (made / "program.py").write_text(program)
    (made / "README.md").write_text("# long-softmax\n")
    return made


def test_lint_has_nothing_to_say_about_it(folder: Path) -> None:
    assert lint_workloads(folder.parent) == ([folder], [])


def test_without_a_gpu_it_reports_all_that_it_promises(folder: Path) -> None:
    done = subprocess.run(
        [torch_python(), folder / "program.py", "--device", "cpu", "--repetitions", "2"],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(canary_dir() / "lib"), "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    workload = read_workload(folder)
    report = read_report([done.stdout], workload)
    assert report.problems == ()
    assert {check.name: check.ok for check in report.checks} == dict.fromkeys(workload.checks, True)
    assert {metric.name for metric in report.metrics} == set(workload.metrics)


@pytest.mark.skipif(find_spec("torch") is not None, reason="PyTorch is installed here")
def test_without_pytorch_it_ends_as_the_page_says(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, folder / "program.py", "--device", "cpu"],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(canary_dir() / "lib")},
        check=False,
    )
    assert f"status {done.returncode}." in PAGE
    assert done.returncode == NOTHING_TO_TEST
    said = f"long-softmax: nothing to test: {sys.executable} has no PyTorch\n"
    assert done.stdout.decode().endswith(said)


@pytest.fixture
def place(folder: Path) -> Path:
    """Where the page's commands are called: its files, for a machine without a GPU."""
    place = folder.parent / "place"
    ours = place / "ours"
    ours.mkdir(parents=True)
    workload = folder.rename(ours / "long-softmax")
    (workload / "program.py").write_text(STEADY)
    manifest = (workload / "workload.toml").read_text().replace("gpus = 1", "gpus = 0")
    (workload / "workload.toml").write_text(manifest.replace('peak = "memory"\n', ""))
    _, suites, hosts = blocks("toml")
    (ours / "suites.toml").write_text(suites)
    (place / "hosts.toml").write_text(re.sub(r"gpu = .*\n", "", hosts))
    (place / "canary").symlink_to(canary_dir())
    return place


def call(command: str, place: Path, **more: str) -> tuple[int, str]:
    """Exit status of a command of the page, and what it said."""
    own = {"COMPATGATE_DATABASE": str(place / "gate.db"), "PYTHONPATH": str(ROOT), **more}
    program = f"{prepared.program()} "
    done = subprocess.run(
        ["sh", "-c", re.sub(r"^compatgate ", program, command)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=place,
        env={**os.environ, **own, "COMPATGATE_WORKLOADS": str(place / "ours")},
    )
    return done.returncode, done.stdout + done.stderr


@contextmanager
def worker(command: str, place: Path) -> Iterator[None]:
    """The worker of the page, in a terminal of its own."""
    own = {"COMPATGATE_DATABASE": str(place / "gate.db"), "PYTHONPATH": str(ROOT)}
    arguments = [sys.executable, "-m", *command.split()]
    with (place / "worker.log").open("w") as log:
        process = subprocess.Popen(
            arguments,
            stderr=log,
            cwd=place,
            env={**os.environ, **own, "COMPATGATE_WORKLOADS": str(place / "ours")},
        )
    try:
        until(lambda: "laptop" in call("compatgate canary hosts", place)[1])
        yield
    finally:
        process.terminate()
        assert process.wait(60) == 0, (place / "worker.log").read_text()


def test_a_slower_program_is_found_before_anything_is_run(place: Path) -> None:
    tried, _ = blocks("console")
    library = str(canary_dir() / "lib")
    for command, status in commands(tried):
        more = {"PYTHONPATH": library} if command.startswith("python3") else {}
        assert call(command, place, **more)[0] == status, command
    assert (place / "ours" / "long-softmax" / "program.py").read_text() == STEADY


def test_it_is_run_its_baseline_approved_and_run_again(place: Path) -> None:
    _, ran = blocks("console")
    export, serve, *then = commands(ran)
    assert export[0].startswith("export COMPATGATE_WORKLOADS=")
    with worker(serve[0], place):
        for command, status in then:
            ended, said = call(command, place)
            assert ended == status, f"{command}\n{said}"
        program = place / "ours" / "long-softmax" / "program.py"
        program.write_text(STEADY.replace("100.0", "90.0"))
        ended, said = call(then[0][0], place)
        assert (ended, "no baseline yet" in said) == (3, True), said
