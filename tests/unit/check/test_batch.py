"""``check --batch``: many questions, answered line by line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from compatgate.cli.main import main

FINE = '{"pool": {"driver": "580.95.05", "gpu": "L4"}, "stack": {"cuda": "12.4", "arch": "sm_89"}}'
DENIED = '{"pool": {"driver": "525.60.12", "gpu": "A100"}, "stack": {"cuda": "12.1"}}'
UNKNOWN = '{"pool": {"driver": "580.95.05", "gpu": "L4"}, "stack": {"torch": "9.9.9"}}'


@pytest.fixture(autouse=True)
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COMPATGATE_SERVER", raising=False)


def batch(
    folder: Path, capsys: pytest.CaptureFixture[str], *lines: str, options: tuple[str, ...] = ()
) -> tuple[int, list[dict[str, Any]]]:
    path = folder / "questions.jsonl"
    path.write_text("\n".join(lines) + "\n")
    status = main(["check", "--batch", str(path), *options])
    return status, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ((FINE,), 0),
        ((FINE, DENIED), 1),
        ((FINE, UNKNOWN), 3),
        ((UNKNOWN, DENIED, FINE), 1),
        ((DENIED, "{"), 2),
        ((), 0),
    ],
)
def test_the_worst_line_is_the_exit_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: tuple[str, ...], status: int
) -> None:
    found, answers = batch(tmp_path, capsys, *lines)
    assert found == status
    assert len(answers) == len(lines)


def test_answers_stand_in_the_order_of_the_questions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, answers = batch(tmp_path, capsys, DENIED, FINE, UNKNOWN)
    assert [answer["verdict"] for answer in answers] == ["fail", "pass", "unknown"]


@pytest.mark.parametrize(
    ("line", "field", "detail"),
    [
        ("{", None, "is not JSON"),
        ("[]", None, "must be a JSON object"),
        ("\u00ff", None, "is not JSON"),
        ('{"stack": {"cuda": "12.4"}}', "target", "name either a target or a pool"),
        ('{"pool": {"gpu": "L4"}, "stack": {"cuda": "banana"}}', "stack.cuda", "banana"),
        ('{"pool": {"gpu": "L4"}, "stak": {}}', "stak", "unknown key"),
    ],
)
def test_a_malformed_line_has_its_error_in_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, field: str | None, detail: str
) -> None:
    status, answers = batch(tmp_path, capsys, FINE, line, FINE)
    assert status == 2
    assert [answer.get("verdict") for answer in answers] == ["pass", None, "pass"]
    assert answers[1]["line"] == 2
    assert answers[1]["error"]["field"] == field
    assert detail in answers[1]["error"]["detail"]
    assert set(answers[1]["error"]) == {"type", "title", "status", "detail", "field", "hint"}


def test_a_blank_line_is_an_error_but_not_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, answers = batch(tmp_path, capsys, FINE, "", FINE, "", " ")
    assert status == 2
    assert ["error" in answer for answer in answers] == [False, True, False]


def test_fail_open_does_not_hide_a_denial(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _ = batch(tmp_path, capsys, UNKNOWN, DENIED, options=("--fail-open",))
    assert status == 1
    status, _ = batch(tmp_path, capsys, UNKNOWN, options=("--fail-open",))
    assert status == 0


def test_questions_come_from_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "in"
    path.write_text(FINE)
    with path.open() as file:
        monkeypatch.setattr("sys.stdin", file)
        assert main(["check", "--batch", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "pass"


@pytest.mark.parametrize(
    "options",
    [
        ("--stack", "cuda=12.4"),
        ("--pool", "gpu=L4"),
        ("--target", "prod"),
        ("--set", "cuda=12.4"),
        ("--image", "app:1"),
        ("--lock", "uv.lock"),
        ("--sbom", "bom.json"),
        ("--node-labels", "nodes.json"),
        ("--format", "sarif"),
    ],
)
def test_options_that_contradict_a_batch_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    status, answers = batch(tmp_path, capsys, FINE, options=options)
    assert (status, answers) == (2, [])


def test_a_file_that_cannot_be_read_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--batch", "/nowhere"]) == 2
    assert "cannot read '/nowhere'" in capsys.readouterr().err
