"""``compatgate target what-if``, as whoever rolls out a driver runs it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from compatgate.cli.main import main
from compatgate.resources import matrix_dir

Run = Callable[..., tuple[int, str, str]]
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "gpu-7",
        "labels": {
            "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
            "nvidia.com/cuda.driver-version.full": "535.183.01",
        },
    },
}


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with the example matrix."""
    path = tmp_path_factory.mktemp("what-if") / "gate.db"
    assert main(["matrix", "import", str(matrix_dir() / "examples"), "--database", str(path)]) == 0
    return path


@pytest.fixture
def run(command: Run, database: Path) -> Run:
    """Run the command: exit status, output, errors."""
    return lambda *arguments: command("target", "what-if", *arguments, "--database", str(database))


def test_a_driver_that_breaks_nothing_is_allowed(run: Run) -> None:
    status, out, _ = run("prod-a100", "--set", "driver=535.216.01")
    assert status == 0
    assert out.startswith("ALLOWED: driver 535.216.01 on prod-a100 breaks none of 4 entries")


def test_what_breaks_is_said_with_rule_message_and_fix(run: Run) -> None:
    status, out, _ = run("prod-a100", "--set", "driver=470.256.02")
    assert status == 1
    assert out.startswith("DENIED: driver 470.256.02 on prod-a100 breaks 4 of 4 entries")
    assert "BREAKS  torch24-cu124 (blessed)" in out
    assert "CG101 driver-too-old" in out
    assert "--set driver=525.60.13" in out


def test_what_is_not_known_is_no_decision(run: Run) -> None:
    status, out, _ = run("inference-l4", "--set", "driver=999.10")
    assert status == 3
    assert out.startswith("NO DECISION")


def test_a_node_may_be_given_as_kubectl_prints_it(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(json.dumps(NODE).encode()))
    monkeypatch.setattr("sys.stdin", stdin)
    status, out, _ = run("--node", "-", "--set", "driver=535.216.01", "--format", "json")
    assert status == 0
    assert json.loads(out)["target"] == "prod-a100"


def test_a_bundle_answers_without_a_database(database: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "b.json"
    exported = ["bundle", "export", "--database", str(database), "-o", str(bundle)]
    assert main(exported) == 0
    asked = ["target", "what-if", "prod-a100", "--set", "driver=470.256.02"]
    assert main([*asked, "--bundle", str(bundle)]) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["prod-a100"], "--set: names no change"),
        (["--set", "driver=580.95.05"], "name a target"),
        (["prod-a10", "--set", "driver=580.95.05"], "prod-a100"),
        (["prod-a100", "--set", "driver=new"], "driver"),
        (["prod-a100", "--pool", "x", "--set", "driver=580.95.05"], "has no pool"),
        (["prod-a100", "--set", "driver=580.95.05", "--bundle", "b"], "cannot be used together"),
        (["--node", "missing.json", "--set", "driver=580.95.05"], "--node"),
    ],
)
def test_a_mistake_is_named_with_exit_status_2(run: Run, arguments: list[str], said: str) -> None:
    status, _, error = run(*arguments)
    assert status == 2
    assert said in error
