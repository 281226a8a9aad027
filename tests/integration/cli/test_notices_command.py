"""``compatgate notices``: list incidents, and act on them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from compatgate.cli.main import main
from compatgate.resources import matrix_dir

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(command: Run, tmp_path: Path) -> Run:
    """Run an action on a database with the example matrix, whose prod-a100 has an old driver."""
    place = ("--database", str(tmp_path / "gate.db"))
    examples = str(matrix_dir() / "examples")
    assert main(["matrix", "import", examples, *place, "--reason", "start"]) == 0
    return lambda *arguments: command("notices", *arguments, *place)


def test_an_incident_is_listed_shown_snoozed_and_reopened(run: Run) -> None:
    listed = json.loads(run("incidents", "--kind", "driver-branch", "--format", "json")[1])
    number = str(listed[0]["id"])
    assert "driver branch 535 is past its end of life" in run("incidents")[1]
    assert "prod-a100 has an old driver" in run("show", number)[1]
    status, out, _ = run("snooze", number, "--comment", "Monday")
    assert (status, out.startswith(f"{number} is snoozed until 20")) == (0, True)
    assert "driver-branch" not in run("incidents")[1]
    assert "driver-branch" in run("incidents", "--snoozed")[1]
    assert run("reopen", number)[:2] == (0, f"{number} is open again\n")
    assert "driver-branch" in run("incidents")[1]


def test_what_is_unknown_is_refused(run: Run) -> None:
    assert "incident 999 does not exist" in run("show", "999")[2]
    status, _, errors = run("snooze", "1", "--for", "a while")
    assert (status, "--for" in errors) == (2, True)
