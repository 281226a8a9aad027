"""``compatgate worker`` with what cannot be: one line each, before anything runs.

A worker shows Prometheus what it does.
"""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from compatgate.canary.worker import WorkerState
from compatgate.cli.main import main
from compatgate.cli.worker import serve_metrics
from compatgate.errors import BadInput

GOOD = '[[host]]\nname = "stage"\ngpu = "A100-SXM4-80GB"\nslots = 2\n'


@pytest.fixture
def worker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., tuple[int, str]]]:
    """Exit status and standard error."""

    def start(hosts: str, *options: str) -> tuple[int, str]:
        (tmp_path / "hosts.toml").write_text(hosts)
        fixed = ["--hosts", str(tmp_path / "hosts.toml"), "--database", str(tmp_path / "gate.db")]
        status = main(["worker", *fixed, "--once", *options])
        return status, capsys.readouterr().err

    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield start
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_with_nothing_to_run_once_ends(worker: Callable[..., tuple[int, str]]) -> None:
    assert worker(f'{GOOD}executor = "process"\n')[0] == 0


def test_once_with_a_dead_engine_says_so_and_fails(
    worker: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    endpoint = f"unix://{tmp_path}/engine.sock"
    status, error = worker(f"{GOOD}endpoint = '{endpoint}'\n")
    assert status == 3
    last = error.splitlines()[-1]
    assert last.startswith("error: hosts: stage is away since 20")
    assert f"the engine of stage ({endpoint}) does not answer" in last
    assert "start the engine" in last


@pytest.mark.parametrize(
    ("hosts", "options", "said"),
    [
        ("", [], "host"),
        (GOOD.replace("A100", "A1000000"), [], "hosts.stage.gpu: 'A1000000-SXM4-80GB' is not"),
        (GOOD.replace('"A100-SXM4-80GB"', '"8.0"'), [], "8.0 is a compute capability"),
        (GOOD, ["--lease", "0"], "'0' is not a number of seconds, 1 to 3600"),
        (GOOD, ["--lease", "nan"], "'nan' is not a number of seconds"),
        (GOOD, ["--retry-pause", "-1"], "'-1' is not a number of seconds, 0 to 3600"),
        (GOOD, ["--grace", "soon"], "'soon' is not a number of seconds, 0 to 86400"),
        (GOOD, ["--concurrency", "0"], "'0' is not a number from 1 to 1024"),
        (GOOD, ["--verify-every", "monthly"], "--verify-every"),
        (GOOD, ["--workloads", "/nowhere"], "folder /nowhere does not exist"),
    ],
)
def test_what_cannot_be_is_named(
    worker: Callable[..., tuple[int, str]], hosts: str, options: list[str], said: str
) -> None:
    status, error = worker(hosts, *options)
    assert status == 2
    assert said in error
    assert "Traceback" not in error


def test_a_file_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["worker", "--hosts", "/nowhere/hosts.toml"]) == 2
    assert "/nowhere/hosts.toml" in capsys.readouterr().err


class Busy:
    """A worker in the middle of its work."""

    def state(self) -> WorkerState:
        done = {"ended": 7, "host_failed": 1, "defect": 0}
        return WorkerState(2, 4, 3, 1, done, 1800000000.0)  # type: ignore[arg-type]


def test_the_state_of_a_worker_is_served() -> None:
    port = serve_metrics(Busy(), "127.0.0.1", 0)  # type: ignore[arg-type]
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    assert {
        "compatgate_worker_running 2.0",
        "compatgate_worker_slots 4.0",
        'compatgate_worker_hosts{state="away"} 1.0',
        'compatgate_worker_runs_total{result="ended"} 7.0',
        'compatgate_worker_runs_total{result="host_failed"} 1.0',
        "compatgate_worker_queue_answered_timestamp_seconds 1.8e+09",
    } <= set(lines)


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(BadInput) as refused:
        serve_metrics(Busy(), "127.0.0.1", taken.getsockname()[1])  # type: ignore[arg-type]
    assert "Address already in use" in refused.value.detail
