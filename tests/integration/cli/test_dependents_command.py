"""``compatgate matrix dependents``: who would notice that an entry is gone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from compatgate.cli.main import main
from compatgate.errors import BadInput
from compatgate.resources import matrix_dir
from compatgate.web.local_gate import LocalClient

Run = Callable[..., tuple[int, str, str]]
STACK = {"cuda": "12.4", "cudnn": "9.1.0", "torch": "2.4.1+cu124"}


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example matrix with two questions, two nodes, and a wider entry beside the narrow one."""
    path = tmp_path_factory.mktemp("dependents") / "gate.db"
    assert main(["matrix", "import", str(matrix_dir() / "examples"), "--database", str(path)]) == 0
    with LocalClient.open(str(path)) as local:
        local.client.ask(target="prod-a100", stack=STACK)
        local.client.ask(target="prod-a100", stack=STACK)
        local.client.ask(target="prod-a100", stack={"cuda": "13.0"})
        local.client.ask(target="prod-a100", stack=STACK, set={"driver": "535.216.01"})
        for name, driver in (("in", "535.183.01"), ("out", "580.95.05")):
            labels = {
                "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
                "nvidia.com/gpu.count": "8",
                "nvidia.com/cuda.driver-version.full": driver,
            }
            local.client.report_nodes([{"name": f"gpu-{name}", "labels": labels}])
    return path


def test_targets_stacks_and_nodes_of_an_entry_are_listed(command: Run, database: Path) -> None:
    place = ("--database", str(database))
    status, out, _ = command("matrix", "dependents", "torch24-cu124", *place, "--format", "json")
    found = json.loads(out)
    assert status == 0
    assert [(t["target"], t["pools"], t["declared_nodes"], t["reported_nodes"], t["stops"])
            for t in found["targets"]] == [("prod-a100", ["a100-80"], 512, 1, True)]  # fmt: skip
    assert [(s["stack"]["torch"], s["decisions"], s["lost"]) for s in found["stacks"]] == [
        ("2.4.1+cu124", 2, True)
    ]
    assert [node["name"] for node in found["nodes"]] == ["gpu-in"]
    assert (found["decisions"], found["lost"], found["left_out"]) == (2, 1, [])
    _, text, _ = command("matrix", "dependents", "torch24-cu121", *place)
    assert "0 decisions about 0 stacks" in text
    assert "replaces torch22-cu121" in text
    assert "replaces torch23-cu118" in text


def test_a_stack_that_another_entry_allows_is_kept(command: Run, database: Path) -> None:
    with LocalClient.open(str(database)) as local:
        wide = {"targets": ["prod-a100"], "components": {"torch": "2.4.*"}, "status": "blessed"}
        about = {"owner": "team-ml", "labels": {"a": "b"}, "links": {"runs": "https://x.example"}}
        document = {"metadata": {"name": "wide", **about}, "spec": wide}
        local.client.create_entry(document, reason="a wider one")
        assert local.client.list_dependents("wide").owner == "team-ml"
        for address in ("javascript:alert(1)", "https://x.example/ y", "ftp://x.example"):
            wrong = {"metadata": {"name": "w", "links": {"runs": address}}, "spec": wide}
            with pytest.raises(BadInput):
                local.client.create_entry(wrong, reason="a link")
    asked = ("matrix", "dependents", "torch24-cu124", "--database", str(database))
    found = json.loads(command(*asked, "--format", "json")[1])
    assert [stack["lost"] for stack in found["stacks"]] == [False]
    status, _, errors = command("matrix", "dependents", "torch24", "--database", str(database))
    assert status == 2
    assert "torch24-cu124" in errors or "torch24-cu121" in errors
