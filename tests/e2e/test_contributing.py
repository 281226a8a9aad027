"""The worked examples of CONTRIBUTING.md do what the page says."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sqlite3
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
        "scripts",
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
            file.parent.mkdir(exist_ok=True)
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


def add_racks(copy: Path) -> None:
    """Do for racks what the page asks for besides its files."""
    (copy / "compatgate/service/nodes/racks/__init__.py").write_text('"""Keep racks."""\n')
    environment = copy / "migrations/env.py"
    text = environment.read_text().replace(
        "CAPABILITIES = (",
        "from compatgate.service.nodes.racks import repository as racks\nCAPABILITIES = (racks,",
    )
    environment.write_text(text)
    written = run(copy, "scripts/migration.py", "add racks")
    assert written.returncode == 0, written.stderr
    tables = copy / "compatgate/kit/database/tables.py"
    raised = re.sub(
        r'EXPECTED_VERSION = "(\d+)"',
        lambda match: f'EXPECTED_VERSION = "{int(match[1]) + 1:04}"',
        tables.read_text(),
    )
    tables.write_text(raised)
    made = run(copy, "scripts/operations.py")
    assert made.returncode == 0, made.stderr


ASKED = """
import sys
from compatgate.web.local_gate import LocalClient
from compatgate.web.app import create_app
from compatgate.web.service import Settings

with LocalClient.open("db") as local:
    rack = local.client.show_rack("r1")
    print(rack.nodes, [one.name for one in local.client.list_racks(hall="south")])
    app = create_app(local.rooms, Settings(anonymous=frozenset({"read"}))).test_client()
    for path in ("/api/v1/racks?hall=north", "/ui/racks", "/ui/racks?format=csv", "/ui/racks/r1"):
        print(app.get(path).text)
    print(sorted(path for path in local.client.openapi()["paths"] if "racks" in path))
"""


def test_an_operation_is_a_table_a_service_and_its_routes(copy: Path) -> None:
    add_racks(copy)
    made = run(copy, "-m", "compatgate", "db", "upgrade", "--database", "db")
    assert made.returncode == 0, made.stderr
    with sqlite3.connect(copy / "db") as database:
        database.execute("INSERT INTO racks (name, hall, nodes) VALUES ('r1', 'north', 8)")
    for asked, answer in re.findall(r"^\$ compatgate (nodes rack.*)\n((?:[^$`].*\n)+)", PAGE, re.M):
        printed = run(copy, "-m", "compatgate", *asked.split(), "--database", "db")
        assert (printed.stdout, printed.stderr) == (answer, "")
    help_of_list = run(copy, "-m", "compatgate", "nodes", "racks", "--help").stdout
    assert "--hall HALL" in help_of_list
    assert "hall of the rack" in help_of_list
    (rest,) = re.findall(r'^\{"items".*\}$', PAGE, re.M)
    asked_here = run(copy, "-c", ASKED)
    assert asked_here.returncode == 0, asked_here.stderr
    lines = asked_here.stdout.splitlines()
    assert lines[:2] == ["8 []", rest]
    assert lines[-1] == "['/api/v1/racks', '/api/v1/racks/{name}']"
    assert '<a href="/ui/racks/r1">r1</a>' in asked_here.stdout
    assert "Name,Hall,Nodes\nr1,north,8" in asked_here.stdout.replace("\r", "")
    assert "<dt>hall</dt><dd>north</dd>" in asked_here.stdout


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
