"""``compatgate solve``: what it prints can be given to ``compatgate check``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from compatgate.cli.main import main
from compatgate.resources import matrix_dir

Run = Callable[..., tuple[int, str, str]]
POOL = ("--pool", "driver=580.95.05,gpu=H100-SXM5-80GB")


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database with the example matrix."""
    path = tmp_path_factory.mktemp("solve") / "gate.db"
    assert main(["matrix", "import", str(matrix_dir() / "examples"), "--database", str(path)]) == 0
    return str(path)


def test_a_stack_passes_check_with_the_same_verdict(command: Run, database: str) -> None:
    gate = ("--target", "prod-a100", "--database", database, "--format", "json")
    status, out, _ = command("solve", *gate, "--want", "torch")
    assert status == 0
    for one in json.loads(out)["stacks"]:
        stack = ",".join(f"{name}={text}" for name, text in one["stack"].items())
        status, out, _ = command("check", *gate, "--stack", stack)
        assert (status, json.loads(out)["id"]) == (0, one["verdicts"][0]["id"])


def test_a_bundle_answers_as_the_database_does(command: Run, database: str, tmp_path: Path) -> None:
    bundle = str(tmp_path / "bundle.json")
    command("bundle", "export", "--output", bundle, "--database", database)
    asked = ("solve", "--target", "prod-a100", "--target", "inference-l4", "--want", "torch")
    _, ours, _ = command(*asked, "--format", "json", "--database", database)
    status, theirs, _ = command(*asked, "--format", "json", "--bundle", bundle)
    assert status == 0
    assert [s["stack"] for s in json.loads(theirs)["stacks"]] == [
        s["stack"] for s in json.loads(ours)["stacks"]
    ]


def test_a_described_pool_needs_no_matrix_and_a_lockfile_is_a_start(
    command: Run, tmp_path: Path
) -> None:
    lock = tmp_path / "requirements.txt"
    lock.write_text("torch==2.14.0\nnumpy==2.0.0\n")
    status, out, _ = command("solve", *POOL, "--want", "torch>=2.15", "--from", str(lock))
    assert status == 0
    assert "PyTorch 2.14.0 -> 2.15.0" in out


def test_without_a_stack_the_nearest_misses_say_why(command: Run) -> None:
    status, out, _ = command(
        "solve", "--pool", "driver=535.183.01,gpu=V100-SXM2-16GB", "--want", "torch>=2.15"
    )
    assert status == 1
    assert "nearest misses" in out
    assert "CG405" in out


CUT = ("--want", "torch,torchvision==0.1.2")
"""No torch goes with it, and torch has more builds than the search has evaluations."""


def test_a_search_that_was_cut_short_decides_nothing(command: Run) -> None:
    status, out, _ = command("solve", *POOL, *CUT)
    assert status == 3
    assert out.startswith("no decision: no stack with torch, torchvision ==0.1.2 was found")
    assert "not every combination was tried" in out
    status, out, _ = command("solve", *POOL, *CUT, "--format", "json")
    answer = json.loads(out)
    assert (status, answer["found"], answer["complete"]) == (3, False, False)


def test_what_the_facts_do_not_know_decides_nothing(command: Run) -> None:
    for want in ("torch>=99", "torch,no-such-thing"):
        status, out, _ = command("solve", *POOL, "--want", want)
        assert status == 3
        assert out.startswith("no decision")


def test_each_stack_comes_with_the_command_that_installs_it(command: Run) -> None:
    wants = ("--want", "torch<2.15,cuda==12.6.*,python==3.12.*,numpy<2", "--limit", "1")
    _, out, _ = command("solve", *POOL, *wants)
    line = next(line for line in out.splitlines() if "install" in line)
    assert line.split() == [
        *("python3.12", "-m", "pip", "install", "torch==2.14.0+cu126", "'numpy<2'"),
        *("--extra-index-url", "https://download.pytorch.org/whl/cu126"),
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "must name at least one part"),
        (("--want", "torch>=two"), "not a version constraint"),
        (("--want", "numpy"), "names no part with GPU code"),
        (("--want", "torch", "--target", "x"), "name targets or describe pools"),
        (("--want", "torch", "--from", "missing.lock"), "missing.lock"),
        (("--want", "torch", "--stack", "cuda=12.4"), "cannot be set here"),
    ],
)
def test_bad_options_are_named(command: Run, arguments: tuple[str, ...], said: str) -> None:
    status, _, err = command("solve", *POOL, *arguments)
    assert status == 2
    assert said in err
