"""Several lockfiles: a question each, as commit hooks and monorepos ask."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from compatgate.cli.main import main

POOL = ["--pool", "driver=580.95.05,gpu=A100-SXM4-80GB"]
GOOD = "torch==2.4.1+cu121\nnvidia-cudnn-cu12==9.1.0.70\n"
BAD = "torch==2.4.1+cu121\nnvidia-cudnn-cu12==8.9.7.29\n"
OPEN = "torch>=2.4\n"
UNRELATED = "flask==3.1.0\n"


@pytest.fixture
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in {"good": GOOD, "bad": BAD, "open": OPEN, "docs": UNRELATED}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "requirements.txt").write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check(*names: str, options: tuple[str, ...] = ()) -> int:
    return main(["check", *POOL, *options, *(f"{name}/requirements.txt" for name in names)])


@pytest.mark.usefixtures("locks")
@pytest.mark.parametrize(
    ("names", "status"),
    [
        (("good",), 0),
        (("good", "bad"), 1),
        (("bad", "good"), 1),
        (("good", "open"), 3),
        (("open", "bad"), 1),
        (("good", "docs"), 3),
    ],
)
def test_the_worst_answer_decides(names: tuple[str, ...], status: int) -> None:
    assert check(*names) == status


@pytest.mark.usefixtures("locks")
def test_requirements_that_pin_nothing_say_so_first_and_name_lock(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert check("open", options=("--format", "json")) == 3
    first, second = json.loads(capsys.readouterr().out)["findings"]
    assert first["message"].startswith(
        "left open: requirements.txt pins no release of torch: compatgate lock --in req"
    )
    assert "'>=2.4' allows several versions" in second["message"]


@pytest.mark.usefixtures("locks")
def test_each_answer_names_its_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert check("good", "bad") == 1
    out = capsys.readouterr().out
    assert out.startswith("good/requirements.txt\nALLOWED")
    assert "\n\nbad/requirements.txt\nDENIED" in out
    check("good")
    assert capsys.readouterr().out.startswith("ALLOWED")


def test_a_stack_in_place_of_a_lockfile_is_refused_with_the_option(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["check", *POOL, "torch==2.8.0"]) == 2
    assert "state versions with --stack torch==2.8.0" in capsys.readouterr().err


@pytest.mark.usefixtures("locks")
def test_names_may_stand_before_options_behind_two_hyphens_or_behind_lock() -> None:
    good, bad = "good/requirements.txt", "bad/requirements.txt"
    for words in ([*POOL, "--", good, bad], ["--lock", good, *POOL, "--lock", bad], [bad, *POOL]):
        assert main(["check", *words]) == 1


@pytest.mark.usefixtures("locks")
def test_failing_open_hides_no_denial() -> None:
    assert check("open", options=("--fail-open",)) == 0
    assert check("open", "bad", options=("--fail-open",)) == 1


def test_failing_open_is_for_whatever_leaves_no_decision(
    locks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (locks / "open" / "requirements.txt").write_text("torch=={{ version }}\n")
    assert check("open") == 3
    assert check("open", options=("--fail-open",)) == 0
    said = capsys.readouterr().err
    assert "is a template" in said
    assert "NO DECISION WAS MADE" in said


@pytest.mark.usefixtures("locks")
def test_unrelated_files_are_passed_over_when_asked_and_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert check("docs", "good", options=("--skip-unrelated",)) == 0
    assert "skipped docs/requirements.txt: it has no GPU components" in capsys.readouterr().err
    assert check("docs", options=("--skip-unrelated", "--format", "json")) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert check("docs", "bad", options=("--skip-unrelated",)) == 1
    assert check("open", options=("--skip-unrelated",)) == 3


def test_an_error_names_the_file_of_several_with_one_name(
    locks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (locks / "bad" / "requirements.txt").write_text("torch==2.4.1\ntorch=2.4.1 # no pin\n")
    assert check("good", "bad") == 2
    assert capsys.readouterr().err.startswith("error: bad/requirements.txt:2: ")


@pytest.mark.usefixtures("locks")
def test_findings_stand_at_the_line_of_the_lock(capsys: pytest.CaptureFixture[str]) -> None:
    assert check("bad", options=("--format", "gitlab-codequality")) == 1
    places = {i["check_name"]: i["location"] for i in json.loads(capsys.readouterr().out)}
    assert places["CG402 framework-cudnn"] == {
        "path": "bad/requirements.txt",
        "lines": {"begin": 2},
    }


@pytest.mark.usefixtures("locks")
def test_what_no_lock_says_is_shown_where_the_caller_wants_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    old = ["--pool", "driver=525.60.12,gpu=A100-SXM4-80GB", "--stack", "cuda=12.1,arch=sm_80"]
    options = ["--format", "github", "--show-at", "docker/Dockerfile:4"]
    assert main(["check", *old, *options]) == 1
    assert capsys.readouterr().out.startswith("::error file=docker/Dockerfile,line=4,title=CG101")


def test_standard_input_is_told_by_its_content_and_read_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ask(*options: str) -> int:
        stream: Any = io.TextIOWrapper(io.BytesIO(BAD.encode()))
        monkeypatch.setattr(sys, "stdin", stream)
        return main(["check", *POOL, *options])

    assert ask("--lock", "-", "--format", "gitlab-codequality") == 1
    assert json.loads(capsys.readouterr().out)[0]["location"]["path"] == "stdin"
    assert ask("--lock", "-", "--sbom", "-") == 2
    assert "standard input can be read only once" in capsys.readouterr().err


def test_names_that_are_no_text_are_shown_as_far_as_they_are(
    locks: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    odd = "odd-\udcff-requirements.txt"
    (locks / odd).write_text(BAD)
    forms = ("text", "json", "sarif", "junit", "github", "gitlab-codequality", "markdown", "dotenv")
    for form in forms:
        assert main(["check", *POOL, "--format", form, odd, "good/requirements.txt"]) == 1
        assert capsysbinary.readouterr().out.decode()
