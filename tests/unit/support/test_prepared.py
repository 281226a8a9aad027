"""What is started from the prepared process is a process as any other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import prepared
import pytest

COMPATGATE = [sys.executable, "-m", "compatgate"]


@pytest.fixture(autouse=True)
def _not_afresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(prepared._state, "fresh", False)


def start(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMPATGATE, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_it_is_forked_and_answers_as_a_fresh_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = ("check", "--pool", "driver=535.104.05,gpu=A100-SXM4-80GB", "--stack", "-")
    forked = start(*question, stdin=subprocess.PIPE, cwd=tmp_path)
    answer = forked.communicate('{"cuda": "12.9"}')
    assert prepared.was_forked(forked)
    monkeypatch.setitem(prepared._state, "fresh", True)
    fresh = start(*question, stdin=subprocess.PIPE, cwd=tmp_path)
    assert not prepared.was_forked(fresh)
    assert answer == fresh.communicate('{"cuda": "12.9"}')
    assert forked.returncode == fresh.returncode


def test_it_reads_its_own_environment_and_leaves_no_file_elsewhere(tmp_path: Path) -> None:
    environment = {**os.environ, "COMPATGATE_DATABASE": f"sqlite:///{tmp_path}/its.db"}
    created = start("db", "upgrade", env=environment, cwd=tmp_path)
    assert created.wait(30) == 0, created.communicate()
    assert prepared.was_forked(created)
    assert (tmp_path / "its.db").exists()


def test_a_signal_ends_it_and_the_status_names_the_signal(tmp_path: Path) -> None:
    served = start("serve", "--port", "0", "--database", str(tmp_path / "gate.db"),
                   start_new_session=True)  # fmt: skip
    assert prepared.was_forked(served)
    assert served.stdout
    assert served.stdout.readline().startswith("compatgate is serving on")
    assert os.getpgid(served.pid) == served.pid
    assert served.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        served.wait(0.01)
    os.killpg(served.pid, signal.SIGKILL)
    assert served.wait(10) == -signal.SIGKILL
    assert "try:" in served.stdout.read()  # to its end: nobody else holds the pipe


@pytest.mark.parametrize(
    "options",
    [
        {"env": {**os.environ, "PYTHONUTF8": "1"}},
        {"env": {**os.environ, "LC_ALL": "C"}},
        {"env": {**os.environ, "PYTHONPATH": "/elsewhere"}},
        {"preexec_fn": os.getpid},
        {"umask": 0o77},
    ],
)
def test_what_a_python_reads_at_its_start_needs_a_fresh_one(options: dict[str, Any]) -> None:
    process = start("--version", **options)
    assert process.communicate()[0].startswith("compatgate ")
    assert not prepared.was_forked(process)


def test_another_package_in_the_folder_is_run_itself(tmp_path: Path) -> None:
    (tmp_path / "compatgate").mkdir()
    (tmp_path / "compatgate" / "__init__.py").touch()
    (tmp_path / "compatgate" / "__main__.py").write_text("print('another')")
    process = start(cwd=tmp_path)
    assert process.communicate()[0] == "another\n"
    assert not prepared.was_forked(process)


def test_a_shell_has_commands_forked_that_end_as_fresh_ones(tmp_path: Path) -> None:
    script = f"""
    {prepared.program()} check --stack cuda=12.9 --format json \
        --pool driver=535.104.05,gpu=A100-SXM4-80GB | head -c 1
    {prepared.program()} check --wrong 2> {tmp_path}/said
    echo $?
    {prepared.program()} serve --port 0 --database {tmp_path}/gate.db > {tmp_path}/out &
    until grep -q serving {tmp_path}/out; do sleep 0.01; done
    kill -TERM $!
    wait $!
    echo $?
    """
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == "{2\n0\n", done.stderr
    assert "--wrong" in (tmp_path / "said").read_text()
    assert prepared.STAND_IN.name in prepared.program().read_text()
    afresh = {**os.environ, "PYTHONUTF8": "1"}
    done = subprocess.run(
        [prepared.program(), "--version"], env=afresh, capture_output=True, check=False
    )
    assert done.stdout.startswith(b"compatgate ")
