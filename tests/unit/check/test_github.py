"""The job summary and the outputs of a step of GitHub Actions."""

from __future__ import annotations

from pathlib import Path

import pytest

from compatgate.cli.main import main
from compatgate.core.rule import OUTCOME_RANK
from compatgate.formats import ci
from compatgate.formats.reports import Answer

POOL = ["--pool", "driver=525.60.12,gpu=A100-SXM4-80GB"]
DENIED = ["check", *POOL, "--stack", "cuda=12.1,arch=sm_80"]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The files of the summary and of the outputs, as the runner names them."""
    summary, output = tmp_path / "summary", tmp_path / "output"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    monkeypatch.setenv("GITHUB_OUTPUT", str(output))
    return summary, output


def read_outputs(path: Path) -> dict[str, str]:
    """As the runner reads them: ``name<<delimiter``, lines, the delimiter alone on a line."""
    values: dict[str, str] = {}
    lines = iter(path.read_text().splitlines())
    for line in lines:
        name, _, delimiter = line.partition("<<")
        assert delimiter, line
        values[name] = "\n".join(iter(lambda end=delimiter: next(lines), delimiter))
    return values


def test_a_step_leaves_a_summary_and_its_outputs(
    files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*DENIED, "--format", "github"]) == 1
    assert capsys.readouterr().out.startswith("::error title=CG101 driver-too-old::")
    summary, output = files
    assert "### ❌ compatgate: DENIED" in summary.read_text()
    found = read_outputs(output)
    assert (found["verdict"], found["allowed"]) == ("fail", "false")
    assert found["id"].startswith("vd_")
    assert found["markdown"] == summary.read_text().strip()


def test_other_forms_leave_nothing(files: tuple[Path, Path]) -> None:
    assert main([*DENIED, "--format", "text"]) == 1
    assert not any(path.exists() for path in files)


def test_outside_of_actions_there_is_nothing_to_write(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    monkeypatch.delenv("GITHUB_OUTPUT", raising=False)
    assert main([*DENIED, "--format", "github"]) == 1
    assert "DENIED" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "status", "level"),
    [((), 3, "error"), (("--fail-open",), 0, "warning")],
)
def test_a_gate_that_cannot_be_reached_is_annotated(
    files: tuple[Path, Path],
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    status: int,
    level: str,
) -> None:
    words = ["--server", "http://127.0.0.1:9", "--target", "prod", "--stack", "cuda=12.1"]
    assert main(["check", *words, "--format", "github", *options]) == status
    assert f"::{level} title=compatgate::http%3A" not in capsys.readouterr().out
    found = read_outputs(files[1])
    assert found == {"verdict": "unknown", "allowed": "false", "id": "", "markdown": ""}


def test_bad_input_is_annotated(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", *POOL, "--stack", "cuda=banana", "--format", "github"]) == 2
    assert capsys.readouterr().out.startswith("::error title=compatgate::")


def test_no_value_can_end_itself_and_begin_another(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    verdict = {"verdict": "pass\nallowed=true\ncompatgate_0", "allowed": False, "id": "x<<y\nz"}
    monkeypatch.setattr(ci, "render_all", lambda name, answers: "a<<b\nc\nb")
    monkeypatch.setitem(OUTCOME_RANK, verdict["verdict"], 3)
    ci.publish([Answer(verdict)])
    found = read_outputs(files[1])
    assert found["allowed"] == "false"
    assert found["verdict"] == verdict["verdict"]
    assert found["markdown"] == "a<<b\nc\nb"


def test_a_summary_that_is_full_takes_no_more(files: tuple[Path, Path]) -> None:
    summary, output = files
    summary.write_bytes(b"x" * (1024 * 1024 - 10))
    assert main([*DENIED, "--format", "github"]) == 1
    assert summary.stat().st_size == 1024 * 1024 - 10
    assert output.exists()
