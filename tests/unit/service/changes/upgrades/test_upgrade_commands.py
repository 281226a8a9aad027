"""``compatgate upgrade`` on the local database: what it prints, and its exit status."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from compatgate.cli.main import main
from compatgate.service.app import Rooms
from compatgate.service.nodes.schemas import Report


def run(capsys: pytest.CaptureFixture[str], rooms: Rooms, *words: str) -> tuple[int, str]:
    status = main([*words, "--database", str(rooms.gate.database.url.database)])
    output = capsys.readouterr()
    return status, output.out + output.err


def test_an_upgrade_from_proposal_to_rollback(
    rooms: Rooms, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    labels = {
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
        "nvidia.com/cuda.driver-version.full": "535.183.01",
    }
    nodes = [{"name": f"n{n}", "target": "prod-a100", "labels": labels} for n in (1, 2)]
    rooms.nodes.report(msgspec.convert({"nodes": nodes}, Report), by="t")
    upgrade = ("upgrade",)
    where = ("--target", "prod-a100", "--driver", "535.216.01", "--without-health")
    status, text = run(capsys, rooms, *upgrade, "create", "roll", *where, "--author", "ana")
    assert (status, "driver 535.216.01 on prod-a100, proposed" in text) == (0, True)
    assert "GPU errors on upgraded nodes go unnoticed" in text
    assert "roll" in run(capsys, rooms, *upgrade, "list")[1]
    status, text = run(capsys, rooms, *upgrade, "may-start", "roll", "--wave", "2")
    assert (status, "WAIT: wave 1 has not started" in text) == (3, True)
    status, text = run(capsys, rooms, *upgrade, "may-start", "roll", "--by", "argo")
    assert (status, "START: wave 1 may start" in text, "default/n1" in text) == (0, True, True)
    status, text = run(capsys, rooms, *upgrade, "may-start", "roll", "--wave", "7")
    assert (status, "it has waves 1 to 2" in text) == (2, True)
    assert run(capsys, rooms, *upgrade, "stop", "roll", "--reason", "pager")[0] == 0
    assert run(capsys, rooms, *upgrade, "resume", "roll", "--reason", "quiet")[0] == 0
    left = run(capsys, rooms, *upgrade, "leave-out", "roll", "n2", "--reason", "repair")
    assert left[0] == 0
    assert run(capsys, rooms, *upgrade, "approve", "roll", "--author", "ben")[0] == 0
    assert run(capsys, rooms, *upgrade, "retract", "roll", "--author", "ben")[0] == 0
    assert run(capsys, rooms, *upgrade, "roll-back", "roll", "--reason", "slow")[0] == 0
    status, text = run(capsys, rooms, *upgrade, "may-start", "roll")
    assert (status, "drivers a100-80 535.183.01" in text) == (1, True)
    assert "rolled the upgrade back: slow" in run(capsys, rooms, *upgrade, "show", "roll")[1]
