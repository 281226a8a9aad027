"""The worked examples of CONTRIBUTING.md do what the page says."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from datetime import date, timedelta
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r'```\w+ title="([^"]+)"\n(.*?)```', PAGE, re.DOTALL))
(COMMAND, ANSWER) = re.findall(r"^\$ (COMPATGATE_FACTS=.*)\n(.*)\n", PAGE, re.MULTILINE)[0]


def run(folder: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python on a copy of the project."""
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "NO_COLOR": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the project with the rule and its test appended to their files."""
    ignored = shutil.ignore_patterns("packages", "locks")  # byte code stays: it takes seconds
    for name in (
        "compatgate",
        "tests/unit/core",
        "tests/support",
        "tests/fixtures",
        "matrix",
        "migrations",
    ):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    for name in ("pyproject.toml", "tests/conftest.py", "tests/unit/conftest.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    for name, text in EXAMPLES.items():
        if name.endswith(".py"):
            file = tmp_path / name
            before = f"{file.read_text()}\n\n" if file.exists() else ""
            file.write_text(before + text)
    return tmp_path


def test_a_rule_is_a_function_and_its_test(copy: Path) -> None:
    explained = run(copy, "-m", "compatgate", "explain", "CG599")
    assert explained.stdout.startswith("CG599 nccl-plugin")
    waiver, expires = copy / "waiver.yaml", date.today() + timedelta(days=30)
    waiver.write_text(
        "apiVersion: compatgate.dev/v1\nkind: Waiver\nmetadata: {name: slow-network}\n"
        "spec: {rules: [CG599], targets: ['*'], match: {everything: true}, owner: ml-platform,\n"
        f"       reason: the plugin comes next week, expires: '{expires}'}}\n"
    )
    stored = run(copy, "-m", "compatgate", "matrix", "import", "waiver.yaml", "--database", "db")
    assert stored.returncode == 0, stored.stderr
    tested = run(copy, "-m", "pytest", "-q", "tests/unit/core/rules/test_nccl.py")
    assert tested.returncode == 0, tested.stdout
    assert "2 passed" in tested.stdout


def test_a_framework_is_one_file(tmp_path: Path) -> None:
    (tmp_path / "oneflow.yaml").write_text(EXAMPLES["oneflow.yaml"])
    variable, _, *command = shlex.split(COMMAND)
    name, _, value = variable.partition("=")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), name: value}
    asked = subprocess.run(
        [sys.executable, "-m", "compatgate", *command],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert asked.stdout.splitlines()[0] == ANSWER
