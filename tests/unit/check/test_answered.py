"""What a server answers is a verdict, or there is none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from gate_stand_in import StandIn, Told, standing_in

from compatgate.cli.main import main

DENIED = ["--pool", "driver=525.60.12,gpu=A100-SXM4-80GB", "--stack", "cuda=12.1,arch=sm_80"]


@pytest.fixture(scope="module")
def gate() -> Iterator[StandIn]:
    with standing_in() as server:
        yield server


@pytest.fixture
def verdict(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["check", *DENIED, "--format", "json"]) == 1
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def ask(gate: StandIn, answer: Any, *options: str) -> int:
    gate.tell(Told(body=json.dumps(answer).encode()))
    return main(["check", "--server", gate.url, *DENIED, *options])


def test_a_verdict_is_taken_as_it_is_with_what_only_a_newer_gate_knows(
    gate: StandIn, verdict: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    newer = {**verdict, "since": 3, "findings": [{**f, "more": {}} for f in verdict["findings"]]}
    assert ask(gate, newer, "--format", "json") == 1
    assert json.loads(capsys.readouterr().out) == newer


@pytest.mark.parametrize("answer", [{}, {"allowed": True}, {"verdict": "pass", "allowed": True}])
def test_something_else_than_a_verdict_is_no_decision(
    gate: StandIn, answer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(gate, answer) == 3
    assert "is not a verdict" in capsys.readouterr().err


def test_a_verdict_that_lacks_anything_or_has_nonsense_in_its_place_is_no_decision(
    gate: StandIn, verdict: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    kept = {"image", "entries", "basis", "ids"}  # of no form
    names = [name for name in verdict if name not in kept]
    assert len(names) > 10
    for name in names:
        rest = {key: value for key, value in verdict.items() if key != name}
        for damaged in (rest, {**rest, name: 1.5}):
            assert ask(gate, damaged) == 3, damaged
            assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("allowed", ["yes", 1, None, "false"])
def test_only_true_allows(gate: StandIn, verdict: dict[str, Any], allowed: Any) -> None:
    assert ask(gate, {**verdict, "verdict": "pass", "allowed": allowed}) == 3
