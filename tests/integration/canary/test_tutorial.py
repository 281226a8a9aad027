"""The workload that docs/canaries.md has one write is whole, and runs."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from canary_programs import torch_python

from compatgate.canary.protocol import read_report
from compatgate.canary.workloads.lint import lint
from compatgate.canary.workloads.read import read_workload
from compatgate.resources import canary_dir

PAGE = Path(__file__).parents[3] / "docs" / "canaries.md"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The files as the page has them."""
    section = PAGE.read_text().split("## One's own in fifteen minutes")[1].split("\n## ")[0]
    manifest, program = (
        re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)[0]
        for language in ("toml", "python")
    )
    made = tmp_path / "long-softmax"
    made.mkdir()
    (made / "workload.toml").write_text(manifest)
    (made / "program.py").write_text(program)
    (made / "README.md").write_text("# long-softmax\n")
    return made


def test_lint_has_nothing_to_say_about_it(folder: Path) -> None:
    assert lint(folder.parent) == ([folder], [])


def test_without_a_gpu_it_reports_all_that_it_promises(folder: Path) -> None:
    done = subprocess.run(
        [torch_python(), folder / "program.py", "--device", "cpu", "--repetitions", "2"],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(canary_dir() / "lib"), "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    workload = read_workload(folder)
    report = read_report([done.stdout], workload)
    assert report.problems == ()
    assert {check.name: check.ok for check in report.checks} == dict.fromkeys(workload.checks, True)
    assert {metric.name for metric in report.metrics} == set(workload.metrics)
