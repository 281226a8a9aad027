"""Waiting for runs, on a gate that answers from a list."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest

from compatgate.cli.canary import runs as waiting
from compatgate.cli.canary.runs import exit_status, wait_for_runs


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


def test_a_terminal_sees_a_bar_and_nothing_that_commands_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    states = [run("queued"), run("running", progress=0.5, doing="[red]\x1b]0;x\x07"), run("passed")]
    assert wait_for_runs(Gate(run_1=states).show, ["run_1"])[0]["state"] == "passed"
    shown = terminal.getvalue()
    assert "run_1" in shown
    assert "\x1b]0;x" not in shown
