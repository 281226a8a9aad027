"""A pasted error gets its cause, and a stack beside it the fix that holds there."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from compatgate.cli.main import main

ERROR = "RuntimeError: CUDA driver version is insufficient for CUDA runtime version\n"
OLD = ["--pool", "driver=450.80.02,gpu=A100-SXM4-80GB"]
NEW = ["--pool", "driver=580.95.05,gpu=A100-SXM4-80GB"]
STACK = ["--stack", "cuda=12.4"]


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "run.log"
    path.write_text(ERROR, encoding="utf-8")
    return str(path)


def triage(capsys: pytest.CaptureFixture[str], *options: str, status: int = 0) -> Any:
    assert main(["triage", *options, "--format", "json"]) == status
    return json.loads(capsys.readouterr().out)["causes"]


def test_a_cause_is_named(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    (cause,) = triage(capsys, log)
    assert (cause["id"], cause["rule"], cause["confidence"]) == (
        "driver-too-old",
        "CG101",
        "likely",
    )
    assert "nvidia-smi" in cause["next"]
    assert "here" not in cause


def test_standard_input_is_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(ERROR.encode())))
    assert [cause["id"] for cause in triage(capsys, "-")] == ["driver-too-old"]


def test_an_unknown_text_is_not_claimed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.log"
    path.write_text("fatal: not a git repository", encoding="utf-8")
    assert triage(capsys, str(path), status=3) == []
    assert main(["triage", str(path)]) == 3
    assert "nothing was recognised" in capsys.readouterr().out


def test_a_stack_that_fails_gets_the_rules_own_fix(
    log: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (cause,) = triage(capsys, log, *STACK, *OLD)
    assert cause["here"]["outcome"] == "fails"
    assert cause["fixes"][0]["verified"]
    assert "driver" in cause["fixes"][0]["set"]
    assert main(["triage", log, *STACK, *OLD]) == 0
    text = capsys.readouterr().out
    assert "fails here" in text
    assert "verified: " in text


def test_a_stack_that_holds_is_said_to(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    (cause,) = triage(capsys, log, *STACK, *NEW)
    assert cause["here"]["outcome"] == "holds"
    assert main(["triage", log, *STACK, *NEW]) == 0
    assert "look for another cause" in capsys.readouterr().out


@pytest.mark.parametrize(
    "options", [STACK, OLD, [*STACK, "--pool", "gpu"], [*STACK, *OLD, "--target", "t"]]
)
def test_half_a_question_is_refused(
    options: list[str], log: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["triage", log, *options]) == 2
    assert "error: " in capsys.readouterr().err


def test_a_file_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["triage", "no-such-file"]) == 2
    assert "no-such-file" in capsys.readouterr().err


def test_standard_input_is_read_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["triage", "-", "--nvidia-smi", "-", *STACK]) == 2
    assert "once" in capsys.readouterr().err


def test_controls_of_a_terminal_are_not_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.log"
    path.write_bytes(b"CUDA out of memory\x9b31m. Tried to allocate\x07 2 GiB")
    assert main(["triage", str(path)]) == 0
    assert not {"\x07", "\x9b"} & set(capsys.readouterr().out)
