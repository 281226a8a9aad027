"""``compatgate matrix packages-report``, as whoever upgrades runs it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from compatgate.cli.main import main

Run = Callable[..., tuple[int, str, str]]
OLD = """\
apiVersion: compatgate.dev/v1
kind: Target
metadata: {name: old}
spec:
  pools: [{name: l4, gpu: L4, driver: 550.54.15}]
  policy: {packages: audit}
"""
STACK = "cuda=12.4,cudnn=9.1.0,torch=2.4.1+cu124"


@pytest.fixture
def run(command: Run, tmp_path: Path) -> Run:
    """Run a command on a database with one target that audits packages."""
    (tmp_path / "old.yaml").write_text(OLD)
    place = ("--database", str(tmp_path / "gate.db"))
    assert main(["matrix", "import", str(tmp_path / "old.yaml"), *place]) == 0
    return lambda *arguments: command(*arguments, *place)


def test_what_would_be_stopped_is_said_with_what_to_do(run: Run) -> None:
    assert run("check", "--target", "old", "--stack", f"{STACK},xformers=0.0.99")[0] == 0
    status, out, _ = run("matrix", "packages-report")
    assert status == 1
    assert out.startswith("old (mode enforce): enforce would stop 1 of 1 decisions and 0 of 0 entr")
    assert "  xformers 0.0.99 (CG410)" in out
    assert "to do: add a record: check --read-wheels" in " ".join(out.split())
    status, out, _ = run("matrix", "packages-report", "--format", "json")
    assert status == 1
    assert json.loads(out)["targets"][0]["packages"][0]["stopped"] == 1


def test_a_target_without_open_packages_may_enforce(run: Run) -> None:
    assert run("check", "--target", "old", "--stack", STACK)[0] == 0
    status, out, _ = run("matrix", "packages-report", "--target", "old")
    assert status == 0
    assert "enforce would stop 0 of 1 decisions" in out


def test_nothing_to_look_at_is_no_all_clear(run: Run) -> None:
    status, out, _ = run("matrix", "packages-report")
    assert status == 3
    assert "no decisions and no entries to check" in out


def test_a_part_of_the_decisions_is_no_all_clear(run: Run) -> None:
    for _ in range(2):
        run("check", "--target", "old", "--stack", STACK)
    status, out, _ = run("matrix", "packages-report", "--decisions", "1")
    assert status == 3
    assert "the newest decisions, not every one, since" in out


def test_targets_that_enforce_have_nothing_to_report(run: Run, tmp_path: Path) -> None:
    (tmp_path / "new.yaml").write_text(OLD.replace("audit", "enforce"))
    assert run("matrix", "import", str(tmp_path / "new.yaml"))[0] == 0
    status, out, _ = run("matrix", "packages-report")
    assert (status, out) == (0, "every target enforces packages: nothing to report\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--since", "soon"], "--since"),
        (["--target", "odd"], "target 'odd' does not exist"),
        (["--decisions", "0"], "--decisions"),
    ],
)
def test_a_mistake_is_named_with_exit_status_2(run: Run, arguments: list[str], said: str) -> None:
    status, _, error = run("matrix", "packages-report", *arguments)
    assert status == 2
    assert said in error
