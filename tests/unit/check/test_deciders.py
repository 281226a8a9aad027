"""Who decides, by the options."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from compatgate.catalog import load_facts
from compatgate.cli.main import main
from compatgate.resources import matrix_dir
from compatgate.service.matrix.snapshots.snapshot import (
    BUNDLE_FORMAT,
    Overlay,
    Payload,
    seal_bundle,
)

HEAVY = (
    *("sqlalchemy", "jsonschema", "alembic", "flask", "rich", "platformdirs", "httpx", "docker"),
    *(
        "compatgate.client",
        "compatgate.cli.gate",
        "compatgate.web.local_gate",
        "compatgate.kit.database",
    ),
)
NOT_FOR_A_TARGET = (
    *("flask", "werkzeug", "jinja2", "httpx", "jsonschema", "alembic", "docker", "greenlet"),
    *("sqlalchemy.dialects.postgresql", "compatgate.client"),
    *(
        "compatgate.web",
        "compatgate.service.app",
        "compatgate.service.attention",
    ),
    *("compatgate.service.nodes", "compatgate.canary"),
)
OVERLAY = """\
schema: facts/driver_branches/v1
branches:
  - {branch: 535, eol: "2090-01-31"}
"""


def bundle(path: Path) -> str:
    """Write a bundle without targets, whose facts differ in one record."""
    payload = Payload(
        format=BUNDLE_FORMAT,
        revision=0,
        made_at="2026-11-21T12:00:00.000000Z",
        facts=load_facts([]).digest,
        overlays=(Overlay("branches.yaml", OVERLAY),),
        documents=(),
    )
    path.write_bytes(seal_bundle(payload))
    return str(path)


def test_a_described_pool_is_decided_with_the_facts_of_the_bundle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = bundle(tmp_path / "gate.bundle")
    question = ("check", "--pool", "driver=535.183.01,gpu=L4", "--stack", "cuda=12.2,arch=sm_89")

    assert main([*question, "--format", "json"]) == 0
    ours = json.loads(capsys.readouterr().out)
    assert main([*question, "--format", "json", "--bundle", path]) == 0
    theirs = json.loads(capsys.readouterr().out)

    assert [finding["rule"] for finding in ours["findings"]] == ["CG104"]
    assert theirs["findings"] == []
    assert theirs["overlays"]


@pytest.mark.parametrize("bundled", [False, True], ids=["pool", "bundle"])
def test_nothing_heavy_is_imported_to_decide_without_a_gate(bundled: bool, tmp_path: Path) -> None:
    place = ["--bundle", bundle(tmp_path / "gate.bundle")] if bundled else []
    pool = ["--pool", "driver=580.65.06,gpu=L4", "--stack", "cuda=12.4,arch=sm_89"]
    program = f"""
import sys
from compatgate.cli.main import main
status = main({["check", *pool, *place]!r})
assert status == 0, status
imported = [name for name in {HEAVY!r} if name in sys.modules]
assert not imported, imported
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_target_of_a_local_file_is_decided_without_the_other_services(tmp_path: Path) -> None:
    place = ["--database", str(tmp_path / "gate.db")]
    examples = str(matrix_dir() / "examples")
    assert main(["matrix", "import", examples, *place]) == 0
    code = f"""
import sys
from compatgate.cli.main import main
status = main(["check", "--target", "prod-a100", "--stack", "cuda=12.4", *{place!r}])
imported = [name for name in {NOT_FOR_A_TARGET!r} if sys.modules.get(name)]
print(status, imported, file=sys.stderr)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stderr == "1 []\n"
    assert "DENIED" in result.stdout
    listed = subprocess.run(
        [sys.executable, "-m", "compatgate", "audit", "decisions", "--format", "json", *place],
        capture_output=True,
        text=True,
    )
    assert '"source": "cli"' in listed.stdout
