"""``compatgate plan``, as a platform engineer runs it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from compatgate.cli.main import main
from compatgate.resources import matrix_dir
from compatgate.web.local_gate import LocalClient

Run = Callable[..., tuple[int, str, str]]
LEAF = "network.topology.nvidia.com/leaf"
STACK = "cuda=12.4,cudnn=9.1.0,torch=2.4.1+cu124"


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with the example matrix, a decision and three nodes."""
    path = tmp_path_factory.mktemp("plan") / "gate.db"
    place = ["--database", str(path)]
    assert main(["matrix", "import", str(matrix_dir() / "examples"), *place]) == 0
    assert main(["check", "--target", "prod-a100", "--stack", STACK, *place]) == 0
    nodes = [
        {
            "name": f"gpu-{number}",
            "labels": {
                "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
                "nvidia.com/gpu.count": "8",
                "nvidia.com/cuda.driver-version.full": "535.183.01",
                LEAF: f"switch-{number // 2}",
            },
        }
        for number in range(3)
    ]
    with LocalClient.open(str(path)) as local:
        local.client.report_nodes(nodes)
    return path


@pytest.fixture
def run(command: Run, database: Path) -> Run:
    """Run the command: exit status, output, errors."""
    return lambda *arguments: command("plan", *arguments, "--database", str(database))


def test_a_plan_names_causes_edits_canaries_drivers_and_waves(run: Run, tmp_path: Path) -> None:
    status, out, _ = run("--target", "prod-a100", "--upgrade", "driver=580", "--format", "json")
    plan = json.loads(out)
    assert status == 1
    assert {group["cause"] for group in plan["groups"]} == {"matrix"}
    assert {s["kind"] for s in plan["subjects"]} == {"entry", "stack"}
    assert [run["suite"] for run in plan["owed"]] == ["dl-core", "smoke"]
    assert [[d["nodes"] for d in wave["domains"]] for wave in plan["order"]["waves"]] == [
        [["gpu-2"]],
        [["gpu-0", "gpu-1"]],
    ]
    edited = tmp_path / "edited.yaml"
    edited.write_text(plan["entries_yaml"])
    place = ["--database", str(tmp_path / "other.db")]
    targets = str(matrix_dir() / "examples" / "targets.yaml")
    assert main(["matrix", "import", targets, str(edited), *place]) == 0


def test_text_and_markdown_have_the_same_sections(run: Run) -> None:
    question = ("--target", "prod-a100", "--set", "driver=580.95.05")
    status, text, _ = run(*question)
    also, markdown, _ = run(*question, "--format", "markdown")
    assert status == also == 1
    assert text.startswith(
        "DENIED: driver 580.95.05 on prod-a100: no vendor fact breaks; 5 stacks need an edited"
    )
    for title in (
        "Matrix: excluded only by the matrix",
        "Required canary runs",
        "wave 1: 1 node of",
    ):
        assert title in text
        assert title in markdown
    assert "```yaml" in markdown


def test_what_breaks_nothing_is_allowed_and_a_mistake_is_named(run: Run) -> None:
    assert run("--target", "prod-a100", "--set", "driver=535.216.01")[0] == 0
    status, _, errors = run("--target", "prod-a100")
    assert status == 2
    assert "--upgrade" in errors
    status, _, errors = run("--target", "prod-a100", "--upgrade", "driver", "--pool", "a100-8")
    assert status == 2
    assert "did you mean a100-80?" in errors


def test_a_bundle_plans_without_decisions_and_nodes(database: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "b.json"
    assert main(["bundle", "export", "--database", str(database), "-o", str(bundle)]) == 0
    asked = ["plan", "--target", "prod-a100", "--upgrade", "driver=580", "--bundle", str(bundle)]
    assert main([*asked, "--format", "json"]) == 1
