"""What the pages are shown with in tests: the example matrix and some of everything else."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from ui_nodes import fill_nodes
from ui_runs import days_ago, fill_runs

from compatgate.documents.sources import read_paths
from compatgate.kit import clock
from compatgate.kit.principal import Authorship
from compatgate.resources import matrix_dir
from compatgate.service.app import Rooms, open_rooms
from compatgate.service.changes.upgrades.schemas import UpgradeRequest

QUESTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("prod-a100", {"cuda": "12.4", "cudnn": "9.1.0", "torch": "2.4.1+cu124", "arch": "sm_80"}),
    ("prod-a100", {"cuda": "11.8", "cudnn": "8.7.0", "torch": "2.3.1+cu118", "arch": "sm_80"}),
    ("inference-l4", {"cuda": "12.4", "arch": "sm_80"}),
    ("inference-l4", {"cuda": "12.4", "arch": "sm_70"}),
    ("dev-rtx", {"cuda": "99.9"}),
)
_UNDECIDED: tuple[str, dict[str, Any]] = (
    "inference-l4",
    {"cuda": "12.99", "cudnn": "9.99.0", "onnxruntime-gpu": "1.23.0", "arch": "sm_89"},
)
_DAYS = 12


def workloads_of(database: str) -> Path:
    """Folder of the workload that the site's runs run: a server's ``COMPATGATE_WORKLOADS``."""
    return Path(database.removeprefix("sqlite:///")).parent / "workloads"


def fill(database: str) -> None:
    """Fill an empty database."""
    rooms = open_rooms(database, overlays=[])
    try:
        with days_ago(_DAYS + 1):
            rooms.matrix.import_documents(
                read_paths([matrix_dir() / "examples"]), Authorship("mara", "the first matrix")
            )
        _past(rooms)
        fill_runs(rooms, workloads_of(database))
        with days_ago(0.1):
            _change(rooms)
            _waive(rooms)
        for target, stack in QUESTIONS:
            _decide(rooms, target, stack)
        fill_nodes(rooms)
        _propose_upgrade(rooms)
    finally:
        rooms.close()


def _propose_upgrade(rooms: Rooms) -> None:
    """An upgrade that owes canaries."""
    asked = UpgradeRequest("prod-580", "prod-a100", "580.95.05")
    rooms.upgrades.propose(asked, Authorship("mara", "fixes Xid 119 on the training racks"))


def _past(rooms: Rooms) -> None:
    """Some decisions on each of the days before, more on some than on others."""
    for day in range(_DAYS, 0, -1):
        with days_ago(day):
            for number in range(1 + day * 7 % 5):
                _decide(rooms, *(*QUESTIONS[:2], _UNDECIDED)[(number + day) % 3])


def _decide(rooms: Rooms, target: str, stack: dict[str, Any]) -> None:
    body = {"target": target, "stack": stack, "image": "registry.example/team/app:1.4"}
    rooms.gate.decide(body, asked_by="ci", source="rest")


def _change(rooms: Rooms) -> None:
    """A second revision, so that there is something to compare."""
    stored = rooms.matrix.get("Entry", "torch22-cu121").document
    spec = {**stored["spec"], "status": "revoked"}
    rooms.matrix.change(
        "Entry",
        "torch22-cu121",
        {"metadata": stored["metadata"], "spec": spec},
        Authorship("mara", "cuDNN 8 is no longer patched"),
    )


def _waive(rooms: Rooms) -> None:
    """A waiver that ends soon, and one that has ended."""
    for name, days in (("night-run", 5), ("old-training", -20)):
        spec = {
            "rules": ["CG802"],
            "targets": ["prod-a100"],
            "owner": "team-night",
            "reason": "the nightly job moves to torch 2.4 next week",
            "expires": (clock.today() + timedelta(days=days)).isoformat(),
            "match": {"components": {"torch": "~=2.3.0"}},
        }
        by = Authorship("mara", f"until {name} has moved")
        rooms.matrix.create("Waiver", {"metadata": {"name": name}, "spec": spec}, by)
