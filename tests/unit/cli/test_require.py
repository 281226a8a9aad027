"""``compatgate require``, through a parser as small as it can be."""

from __future__ import annotations

import argparse
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from compatgate.cli.env import run_require
from compatgate.core.requirements.model import MalformedRequirement
from compatgate.errors import BadInput

PUBLISHED = "cuda>=12.4 brand=tesla,driver>=470,driver<471"
HOST = ["--cuda", "12.2", "--driver", "535.104.05", "--arch", "8.0", "--brand", "tesla"]
OLDER = ["--cuda", "12.2", "--driver", "470.57.02", "--arch", "8.0", "--brand", "tesla"]


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    run_require.add_arguments(parser)
    return run_require(parser.parse_args(words))


def batch(path: Path, *lines: Any) -> str:
    """A batch file of these lines: bytes as they are, anything else as JSON."""
    encoded = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    path.write_bytes(b"".join(line + b"\n" for line in encoded))
    return str(path)


def results(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_host_that_meets_the_requirement_is_satisfied(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(PUBLISHED, *OLDER) == 0
    assert capsys.readouterr().out == (
        "satisfied: brand=tesla,driver>=470,driver<471 holds: "
        "the host has brand tesla, driver 470.57.02\n"
    )


def test_a_host_that_does_not_is_told_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(PUBLISHED, *HOST) == 1
    said = capsys.readouterr().out
    assert said.startswith("not satisfied: ")
    assert "the host has cuda 12.2" in said
    assert "driver<471 fails, the host has driver 535.104.05" in said


def test_all_requirements_given_must_hold() -> None:
    assert run("cuda>=12.2", "driver>=535", *HOST) == 0
    assert run("cuda>=12.2", "driver>=550", *HOST) == 1


def test_an_answer_can_be_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("cuda>=12.4", *HOST, "--format", "json") == 1
    assert results(capsys) == [
        {"satisfied": False, "reason": "cuda>=12.4 does not hold: the host has cuda 12.2"}
    ]


def test_the_dialect_is_that_of_go_unless_told_otherwise() -> None:
    assert run("CUDA>=13.0", *HOST) == 0
    assert run("CUDA>=13.0", *HOST, "--impl", "go") == 0
    assert run("CUDA>=13.0", *HOST, "--impl", "c") == 1


def test_what_is_left_out_of_the_host_is_not_known() -> None:
    assert run("brand=tesla,driver>=470", "--cuda", "12.2") == 1
    assert run("brand=tesla,driver>=470", "--cuda", "12.2", "--impl", "c") == 0


def test_a_malformed_requirement_is_an_error_that_ends_with_2() -> None:
    with pytest.raises(MalformedRequirement, match="cuda==12") as caught:
        run("cuda==12", *HOST)
    assert caught.value.exit_code == 2


def test_a_malformed_host_value_is_an_error_that_ends_with_2() -> None:
    with pytest.raises(BadInput, match="cuda: 'banana' is not a version") as caught:
        run("cuda>=12", "--cuda", "banana")
    assert caught.value.exit_code == 2


def test_no_requirement_at_all_is_an_error() -> None:
    with pytest.raises(BadInput, match="no requirement to check"):
        run(*HOST)


def test_a_batch_answers_every_line_in_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    host = {"cuda": "12.2", "driver": "470.57.02", "arch": "8.0", "brand": "Tesla"}
    path = batch(
        tmp_path / "batch.jsonl",
        {"require": [PUBLISHED], "impl": "go", **host},
        {"require": [PUBLISHED], "impl": "c", **host},
        {"require": ["cuda>=12.4"], "cuda": "12.4"},
        {"require": [], "cuda": None},
    )
    assert run("--batch", path) == 0
    answers = results(capsys)
    assert [answer["satisfied"] for answer in answers] == [False, True, True, True]
    assert answers[2]["reason"] == "cuda>=12.4 holds: the host has cuda 12.4"
    assert all(set(answer) == {"satisfied", "reason"} for answer in answers)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ({"require": ["cuda==12"]}, "'cuda==12' has the operator '=='"),
        ({"require": ["cuda>=12"], "cuda": "banana"}, "cuda: 'banana' is not a version"),
        ({"require": "cuda>=12"}, "require has the wrong form"),
        ({"require": [12]}, "require[0] has the wrong form"),
        ({"require": None}, "require has the wrong form"),
        ({"require": [], "cuda": 12.2}, "cuda has the wrong form"),
        ({"require": [], "impl": "rust"}, "impl has the wrong form"),
        ({"require": [], "gpu": "A100"}, "gpu"),
        ({"cuda": "12.2"}, "require"),
        ([], "it has the wrong form"),
        (b"cuda>=12", "malformed line"),
        (b'{"require": []', "malformed line"),
        (b"", "malformed line"),
        (b"\xff\xfe", "malformed line"),
        (b'{"require": ["\xff"]}', "malformed line"),
        (b'{"require": ["brand=\\ud800"]}', "malformed line"),
        (b"[" * 100_000, "it has the wrong form"),
    ],
)
def test_a_line_in_error_has_its_error_in_place_and_the_batch_ends_with_2(
    line: Any, error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = {"require": ["cuda>=12"], "cuda": "12.2"}
    assert run("--batch", batch(tmp_path / "batch.jsonl", good, line, good)) == 2
    before, wrong, after = results(capsys)
    assert before == after == {"satisfied": True, "reason": before["reason"]}
    assert set(wrong) == {"error"}
    assert error in wrong["error"]


def test_an_unsatisfied_line_is_no_error(tmp_path: Path) -> None:
    assert run("--batch", batch(tmp_path / "b", {"require": ["cuda>=99"], "cuda": "12.2"})) == 0


def test_impl_is_the_dialect_of_lines_that_name_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = batch(tmp_path / "b", {"require": ["foo=1"]}, {"require": ["foo=1"], "impl": "go"})
    assert run("--batch", path, "--impl", "c") == 2
    assert ["error" in result for result in results(capsys)] == [True, False]


def test_a_batch_comes_from_standard_input_as_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = b'{"require": []}\r\n{"require": ["cuda>=12"], "cuda": "11.8"}'
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
    assert run("--batch", "-") == 0
    assert [result["satisfied"] for result in results(capsys)] == [True, False]


def test_a_batch_is_answered_while_it_is_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answered: list[int] = []

    class Lines(io.BytesIO):
        def __next__(self) -> bytes:
            answered.append(len(results(capsys)))
            return super().__next__()

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Lines(b'{"require": []}\n' * 3)))
    assert run("--batch", "-") == 0
    assert answered == [0, 1, 1, 1]


def test_an_empty_batch_has_no_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--batch", batch(tmp_path / "b")) == 0
    assert results(capsys) == []


def test_a_batch_that_cannot_be_read_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot read '.*absent'.*No such file"):
        run("--batch", str(tmp_path / "absent"))
    with pytest.raises(BadInput, match="cannot read"):
        run("--batch", str(tmp_path))


@pytest.mark.parametrize("words", [["cuda>=12"], ["--cuda", "12.2"], ["cuda>=12", *HOST]])
def test_a_batch_takes_requirements_and_hosts_from_its_lines_only(
    words: list[str], tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match="omit "):
        run(*words, "--batch", batch(tmp_path / "b", {"require": []}))


def test_answers_are_ascii_whatever_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = batch(tmp_path / "b", {"require": ["brand=é"], "brand": "日本"}, {"é": 1})
    assert run("--batch", path) == 2
    assert capsys.readouterr().out.isascii()
