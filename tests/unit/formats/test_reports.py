"""Several forms in one run, and the files that they go to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compatgate.cli.main import main
from compatgate.errors import BadInput
from compatgate.formats.reports import Report, read_reports

POOL = ["--pool", "driver=525.60.12,gpu=A100-SXM4-80GB"]
DENIED = [*POOL, "--stack", "cuda=12.1,arch=sm_80"]


@pytest.mark.parametrize(
    ("forms", "output", "reports"),
    [
        ([], None, [Report("text")]),
        ([], "out", [Report("text", "out")]),
        (["json"], None, [Report("json")]),
        (["json"], "out", [Report("json", "out")]),
        (["sarif=a"], None, [Report("text"), Report("sarif", "a")]),
        (["sarif=a", "json"], "b", [Report("sarif", "a"), Report("json", "b")]),
        (["sarif=-"], "b", [Report("text", "b"), Report("sarif")]),
        (["sarif=a=b"], None, [Report("text"), Report("sarif", "a=b")]),
    ],
)
def test_a_form_goes_to_its_file_or_to_the_output(
    forms: list[str], output: str | None, reports: list[Report]
) -> None:
    assert read_reports(forms, output) == reports


@pytest.mark.parametrize(
    ("forms", "output"),
    [(["json", "text"], None), (["json=a", "text=a"], None), (["json=a", "text"], "a")],
)
def test_two_forms_never_go_to_one_place(forms: list[str], output: str | None) -> None:
    with pytest.raises(BadInput, match="several formats write to"):
        read_reports(forms, output)


def test_one_run_writes_every_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    forms = ("sarif", "junit", "json", "markdown", "gitlab-codequality", "dotenv")
    options = [word for form in forms for word in ("--format", f"{form}={tmp_path / form}")]
    assert main(["check", *DENIED, *options]) == 1
    assert capsys.readouterr().out.startswith("DENIED: ")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(forms)
    assert json.loads((tmp_path / "json").read_text())["verdict"] == "fail"
    assert "COMPATGATE_ALLOWED=false\n" in (tmp_path / "dotenv").read_text()


def test_with_an_output_standard_output_is_silent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", *DENIED, "--format", "json", "--output", str(tmp_path / "v")]) == 1
    assert capsys.readouterr().out == ""
    assert json.loads((tmp_path / "v").read_text())["allowed"] is False


def test_where_there_is_no_answer_no_earlier_report_is_left(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text("of yesterday")
    lock = tmp_path / "requirements.txt"
    lock.write_text("")
    assert main(["check", *POOL, "--lock", str(lock), "--format", f"junit={report}"]) == 3
    assert not report.exists()


def test_a_report_that_cannot_be_written_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", *DENIED, "--format", f"sarif={tmp_path}/none/x"]) == 2
    assert "cannot write" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["yaml", "sarif=", "=x", ""])
def test_a_form_that_there_is_not_is_refused(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", *DENIED, "--format", form]) == 2
    assert "is not NAME or NAME=FILE of text, json" in capsys.readouterr().err


def test_a_batch_has_no_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    questions = tmp_path / "q.jsonl"
    questions.write_text("")
    for option in (["--format", "sarif=x"], ["--output", "x"], ["--format", "github"]):
        assert main(["check", "--batch", str(questions), *option]) == 2
    assert "which prints JSON lines" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--lock", "--sbom", "--probe"])
def test_a_report_never_takes_the_place_of_what_is_read(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    read = tmp_path / "uv.lock"
    read.write_text("mine")
    link = tmp_path / "link"
    link.symlink_to(read)
    for report in (["--format", f"json={read}"], ["--output", str(link)]):
        assert main(["check", *POOL, option, str(read), *report]) == 2
        assert "would overwrite the input file" in capsys.readouterr().err
    assert read.read_text() == "mine"
