"""Project files of ``compatgate lock``: what is not readable is said in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from compatgate.cli.main import main

POOL = ["--pool", "driver=580.95.05,gpu=A100-SXM4-80GB"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a = [", "is not TOML: "),
        ("a = " + "[" * 20_000, "is not TOML: nested too deeply"),
        ("a = 1", "has no table [project]"),
        ("[project]\ndependencies = 1", "the table [project] is malformed"),
    ],
)
def test_a_damaged_project_file_is_named(
    text: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(text)
    assert main(["lock", *POOL, "--in", str(path)]) == 2
    said = capsys.readouterr().err
    assert problem in said
    assert "defect" not in said
