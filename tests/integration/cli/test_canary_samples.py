"""``canary sample``, of a run that a worker really made."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from platform import python_version

import pytest

from compatgate.canary.engine import Settings
from compatgate.canary.hosts import Host
from compatgate.canary.worker import Worker, open_host
from compatgate.kit.database.database import ENVIRONMENT
from compatgate.service.app import open_rooms
from compatgate.service.runs.queue.schemas import RunRequest

Cli = Callable[..., tuple[int, str, str]]
HOST = Host("builder", executor="process", health="none")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A database in which hello-cpu has run as a process, and the run's id."""
    path = tmp_path_factory.mktemp("sampled") / "gate.db"
    rooms = open_rooms(str(path), overlays=[])
    settings = Settings(poll=0.02, repeats=0)
    queue = rooms.runs.open_queue(settings)
    queue.register("w", [HOST])
    asked = RunRequest("hello", host=HOST.name, stack={"python": python_version()})
    (run,) = rooms.runs.submit(asked, by="mara")
    context = open_host(
        HOST, queue, rooms.baselines, rooms.runs.catalogue, rooms.gate.facts, settings
    )
    Worker("w", queue, [HOST], {HOST.name: context}, idle=0.02).run(once=True)
    context.executor.close()
    rooms.close()
    return path, run.id


@pytest.fixture
def cli(made: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, command: Cli) -> Cli:
    """The commands on that database, or on another one."""
    monkeypatch.delenv("COMPATGATE_SERVER", raising=False)

    def run(*arguments: str, database: Path = made[0]) -> tuple[int, str, str]:
        monkeypatch.setenv(ENVIRONMENT, str(database))
        return command("canary", *arguments)

    return run


@pytest.fixture
def sample(made: tuple[Path, str], cli: Cli, tmp_path: Path) -> Path:
    """The run's sample, as the command wrote it."""
    status, out, err = cli("sample", made[1], "-o", str(tmp_path))
    assert status == 0, err
    return Path(out.strip())


def fresh(tmp_path: Path) -> Path:
    """The database of a gate that has seen nothing."""
    path = tmp_path / "fresh.db"
    open_rooms(str(path), overlays=[]).close()
    return path


def test_a_run_gives_a_file_that_the_judge_reads(
    made: tuple[Path, str], cli: Cli, sample: Path, tmp_path: Path
) -> None:
    assert sample == tmp_path / f"{made[1]}_hello-cpu-0.jsonl"
    lines = [json.loads(line) for line in sample.read_text().splitlines()]
    assert [line["type"] for line in lines][:2] == ["env", "metric"]
    status, out, _ = cli("judge", str(sample), str(sample), "--tolerance", "0.25")
    assert (status in (0, 3), "hash-time: " in out) == (True, True), "3 where it was noisy"
    again = cli("sample", made[1], "-o", str(tmp_path), "--format", "json")
    assert (again[0], json.loads(again[1])["written"]) == (0, [str(sample)])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("run_none",), "run 'run_none' does not exist"),
        (("RUN", "--step", "hello-cpu-1"), "did you mean hello-cpu-0?"),
        (("RUN", "-o", "/dev/null"), "cannot write"),
    ],
)
def test_bad_input_ends_with_2_and_says_why(
    made: tuple[Path, str], cli: Cli, arguments: tuple[str, ...], says: str
) -> None:
    status, _, err = cli("sample", *(made[1] if a == "RUN" else a for a in arguments))
    assert (status, says in err) == (2, True), err


def test_a_run_that_waits_gives_none_yet(cli: Cli, tmp_path: Path) -> None:
    path = fresh(tmp_path)
    rooms = open_rooms(str(path), overlays=[])
    rooms.runs.queue.register("w", [HOST])
    (run,) = rooms.runs.submit(RunRequest("hello", host=HOST.name), by="mara")
    rooms.close()
    status, _, err = cli("sample", run.id, database=path)
    assert (status, f"the run {run.id} is queued" in err) == (2, True)
