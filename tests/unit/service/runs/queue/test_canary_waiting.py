"""Waiting for runs, on a gate that answers from a list."""

from __future__ import annotations

from typing import Any

import pytest

from compatgate.cli.canary import runs as waiting
from compatgate.cli.canary.runs import exit_status, wait_for_runs
from compatgate.errors import Unavailable


def run(state: str, run_id: str = "run_1", **fields: Any) -> dict[str, Any]:
    body = {"id": run_id, "state": state, "on_host": None, "doing": "", "reason": ""}
    return {**body, "progress": None, **fields}


class Gate:
    """Shows each run as it goes on, one state a question."""

    def __init__(self, **runs: list[dict[str, Any]]) -> None:
        self._runs = runs

    def show(self, name: str) -> dict[str, Any]:
        states = self._runs[name]
        return states.pop(0) if len(states) > 1 else states[0]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "POLL_SECONDS", 0.0)


@pytest.mark.parametrize(
    ("states", "status"),
    [
        (("passed", "passed"), 0),
        (("passed", "failed", "error"), 1),
        (("passed", "inconclusive"), 3),
        (("error",), 3),
        (("timeout",), 3),
        (("cancelled", "passed"), 3),
        ((), 3),
    ],
)
def test_the_worst_end_decides_the_exit_status(states: tuple[str, ...], status: int) -> None:
    assert exit_status([run(state) for state in states]) == status


def test_a_line_is_said_for_each_change_and_none_twice(
    capsys: pytest.CaptureFixture[str],
) -> None:
    running = run("running", on_host="h1", doing="gemm")
    states = [run("queued"), run("queued"), running, running, run("passed", on_host="h1")]
    ended = wait_for_runs(Gate(run_1=states).show, ["run_1"])
    assert [each["state"] for each in ended] == ["passed"]
    assert capsys.readouterr().err.splitlines() == [
        "run_1 queued",
        "run_1 running on h1: gemm",
        "run_1 passed on h1",
    ]


def test_several_runs_are_waited_for_together() -> None:
    gate = Gate(
        a=[run("failed", "a")], b=[run("queued", "b"), run("running", "b"), run("passed", "b")]
    )
    ended = wait_for_runs(gate.show, ["a", "b"])
    assert [each["state"] for each in ended] == ["failed", "passed"]


def test_a_terminal_sees_nothing_that_commands_it(capsys: pytest.CaptureFixture[str]) -> None:
    states = [run("queued"), run("running", progress=0.5, doing="[red]\x1b]0;x\x07"), run("passed")]
    assert wait_for_runs(Gate(run_1=states).show, ["run_1"])[0]["state"] == "passed"
    shown = capsys.readouterr().err
    assert "run_1" in shown
    assert "\x1b]0;x" not in shown


def test_a_log_gets_progress_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def states() -> list[dict[str, Any]]:
        shares = [run("running", doing=f"running gemm-0 (1 of 1), {n}%") for n in (1, 2, 3)]
        return [*shares, run("passed")]

    wait_for_runs(Gate(run_1=states()).show, ["run_1"])
    assert len(capsys.readouterr().err.splitlines()) == 2
    monkeypatch.setattr(waiting, "_REPEAT_S", 0.0)
    wait_for_runs(Gate(run_1=states()).show, ["run_1"])
    assert len(capsys.readouterr().err.splitlines()) == 4


def test_a_gate_that_restarts_is_waited_for_and_how_to_resume_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, away = Gate(run_1=[run("running"), run("passed")]), iter([False, True, True, False])

    def show(name: str) -> dict[str, Any]:
        if next(away, False):
            raise Unavailable("the gate at http://gate does not answer")
        return gate.show(name)

    assert wait_for_runs(show, ["run_1"])[0]["state"] == "passed"
    said = [line for line in capsys.readouterr().err.splitlines() if "does not answer" in line]
    assert len(said) == 1
    assert said[0].endswith("to go on waiting: compatgate canary show --wait run_1")
    monkeypatch.setattr(waiting, "_PATIENCE_S", 0.0)
    away = iter([True] * 9)
    with pytest.raises(Unavailable, match="canary show --wait run_1"):
        wait_for_runs(show, ["run_1"])
