"""``compatgate report``: the postmortem of a target."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from canary_runs import host

from compatgate.cli.main import main
from compatgate.resources import matrix_dir
from compatgate.service.attention import reports as service
from compatgate.web.local_gate import LocalClient

Run = Callable[..., tuple[int, str, str]]
STACK = {"cuda": "12.4", "cudnn": "9.1.0", "torch": "2.4.1+cu124"}
REVOKED = {
    "metadata": {"name": "torch24-cu124"},
    "spec": {
        "targets": ["prod-a100"],
        "components": {"cuda": "12.4.*", "cudnn": "9.1.*", "torch": "~=2.4.0"},
        "status": "revoked",
    },
}
HOSTILE = "registry.example/<script>1337</script>|`x`:1"


def report_nodes(local: LocalClient, driver: str, *names: str) -> None:
    labels = {
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
        "nvidia.com/gpu.count": "8",
        "nvidia.com/cuda.driver-version.full": driver,
    }
    local.client.report_nodes([{"name": name, "labels": labels} for name in names])


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A day on prod-a100: questions, a revoked entry, a new driver on two nodes, a canary run."""
    path = tmp_path_factory.mktemp("report") / "gate.db"
    examples = str(matrix_dir() / "examples")
    assert main(["matrix", "import", examples, "--database", str(path), "--reason", "start"]) == 0
    with LocalClient.open(str(path), name="ann") as local:
        for _ in range(2):
            assert local.client.ask(target="prod-a100", stack=STACK).allowed
        assert not local.client.ask(target="prod-a100", stack={"cuda": "13.0"}).allowed
        local.client.ask(target="prod-a100", stack=STACK, image=HOSTILE)
        local.client.ask(target="inference-l4", stack={"cuda": "12.8"})
        report_nodes(local, "535.183.01", "gpu-1", "gpu-2")
        report_nodes(local, "535.216.01", "gpu-1", "gpu-2")
        local.rooms.runs.queue.register("w1", [host()])
        local.client.submit_runs("smoke", target="prod-a100", stack=STACK, image="i:1")
        local.client.change_entry("torch24-cu124", REVOKED, reason="it hangs")
    return path


@pytest.fixture
def run(command: Run, database: Path) -> Run:
    """Run the command: exit status, output, errors."""
    return lambda *arguments: command("report", *arguments, "--database", str(database))


def test_a_report_says_what_happened_and_what_would_be_said_today(run: Run) -> None:
    status, out, _ = run("--target", "prod-a100", "--format", "json")
    report = json.loads(out)
    assert status == 0
    assert report["counts"] == {
        "changes": 8,
        "decisions": 4,
        "allowed": 3,
        "denied": 1,
        "undecided": 0,
        "different": 3,
        "runs": 1,
        "node_events": 2,
    }
    first = next(one for one in report["asked"] if one["decisions"] == 2)
    assert (first["allowed"], first["allowed_today"], first["differs"]) == (True, False, True)
    assert ("CG802", "matrix") in {(f["rule"], f["cause"]) for f in first["new"]}
    assert first["asked_by"] == ["cli:ann"]
    assert not report["asked"][0]["allowed"]
    times = [event["at"] for event in report["timeline"]]
    assert times == sorted(times)
    told = [event["what"] for event in report["timeline"]]
    for said in (
        "change Entry torch24-cu124",
        "gpu-1, gpu-2: driver 535.183.01 -> 535.216.01",
        "denied (fail): cuda 13.0",
    ):
        assert said in told
    assert any(what.startswith("requested: suite smoke") for what in told)
    assert not any("inference-l4" in what for what in told)
    assert report["left_out"] == []


def test_markdown_and_html_show_the_same_and_escape_what_others_wrote(run: Run) -> None:
    _, markdown, _ = run("--target", "prod-a100")
    _, page, _ = run("--target", "prod-a100", "--format", "html")
    for said in ("Timeline", "Other answers today", "reason: it hangs"):
        assert said in markdown
        assert said in page
    assert "<script>" not in markdown.replace("\\<script", "")
    assert "<script>" not in page
    assert "&lt;script&gt;1337" in page


def test_limits_are_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MAX_QUESTIONS", 1)
    report = json.loads(run("--target", "prod-a100", "--format", "json")[1])
    assert len(report["asked"]) == 1
    assert report["counts"]["decisions"] == 4
    assert report["left_out"] == [
        "3 different answers: only 1 were re-evaluated, denied ones first, then the most asked"
    ]


def test_a_deleted_target_has_a_report_and_an_unknown_one_has_none(run: Run) -> None:
    status, _, errors = run("--target", "prod-a10")
    assert status == 2
    assert "did you mean prod-a100?" in errors
    status, _, errors = run("--target", "prod-a100", "--from", "2026-02-30")
    assert status == 2
    assert "is not a time" in errors
    status, _, errors = run("--target", "prod-a100", "--from", "2026-02-03", "--to", "2026-02-01")
    assert status == 2
    assert "ends before it begins" in errors
