"""``compatgate check --target``: from the database, from a bundle, and in a batch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

MATRIX = """\
apiVersion: compatgate.dev/v1
kind: Target
metadata: {name: prod-a100}
spec:
  pools:
    - {name: a100-80, gpu: A100-SXM4-80GB, driver: 535.183.01, os: linux, count: 512}
  policy: {mode: enforce, requireEntry: true, onUnknown: fail}
---
apiVersion: compatgate.dev/v1
kind: Entry
metadata: {name: cu122}
spec:
  targets: [prod-a100]
  components: {driver: ">=535.104.05,<536", cuda: "12.2.*"}
  status: blessed
  reason: suite dl-core passed on staging
"""


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gate")
    (folder / "matrix.yaml").write_text(MATRIX)
    path = folder / "gate.db"
    arguments = ("matrix", "import", str(folder / "matrix.yaml"), "--reason", "start")
    result = run(path, *arguments)
    assert result.returncode == 0, result.stderr
    return path


def run(database: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("COMPATGATE_")}
    return subprocess.run(
        [sys.executable, "-m", "compatgate", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**clean, "COMPATGATE_DATABASE": str(database)},
    )


def check(database: Path, stack: str, *options: str) -> subprocess.CompletedProcess[str]:
    return run(database, "check", "--target", "prod-a100", "--stack", stack, *options)


def test_a_blessed_stack_is_allowed_and_others_are_not(database: Path) -> None:
    assert check(database, "cuda=12.2,arch=sm_80").returncode == 0
    denied = check(database, "cuda=12.1,arch=sm_80")
    assert denied.returncode == 1
    assert "CG801 not-blessed" in denied.stdout
    assert "a100-80: A100-SXM4-80GB, driver 535.183.01" in denied.stdout
    assert "matrix revision 1" in denied.stdout


def test_what_if_changes_the_targets_pools(database: Path) -> None:
    result = check(database, "cuda=12.2,arch=sm_80", "--set", "driver=525.60.13")
    assert result.returncode == 1
    assert "525.60.13" in result.stdout


def test_an_unknown_target_names_the_near_one(database: Path) -> None:
    result = run(database, "check", "--target", "prod-a10", "--stack", "cuda=12.2")
    assert result.returncode == 2
    assert "did you mean prod-a100" in result.stderr


def test_a_bundle_gives_the_same_verdict_without_the_database(
    database: Path, tmp_path: Path
) -> None:
    bundle = tmp_path / "gate.bundle"
    assert run(database, "bundle", "export", "-o", str(bundle)).returncode == 0
    options = ("--format", "json")
    ours = json.loads(check(database, "cuda=12.2,arch=sm_80", *options).stdout)
    empty = tmp_path / "empty.db"
    result = check(empty, "cuda=12.2,arch=sm_80", *options, "--bundle", str(bundle))
    assert result.returncode == 0
    assert json.loads(result.stdout)["id"] == ours["id"]
    assert not empty.exists()


def test_a_damaged_bundle_is_bad_input(database: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "gate.bundle"
    bundle.write_text("{}")
    result = check(database, "cuda=12.1", "--bundle", str(bundle))
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1


def test_a_batch_mixes_targets_and_pools(database: Path, tmp_path: Path) -> None:
    stack = {"cuda": "12.2", "arch": "sm_80"}
    bodies = [
        {"target": "prod-a100", "stack": stack},
        {"pool": {"driver": "535.104.05", "gpu": "H100"}, "stack": stack},
        {"target": "nowhere", "stack": stack},
    ]
    path = tmp_path / "questions.jsonl"
    path.write_text("\n".join(map(json.dumps, bodies)))
    result = run(database, "check", "--batch", str(path))
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.returncode == 2
    assert [answer.get("allowed") for answer in answers] == [True, False, None]
    assert "nowhere" in answers[2]["error"]["detail"]


def test_the_variables_of_a_target_are_those_of_its_pools(database: Path) -> None:
    result = run(database, "env", "--target", "prod-a100", "--format", "json")
    assert result.returncode == 0
    assert json.loads(result.stdout)["UV_CUDA_DRIVER_VERSION"] == "535.183.01"
