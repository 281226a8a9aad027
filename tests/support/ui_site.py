"""What the pages are shown with in tests: the example matrix and some of everything else."""

from __future__ import annotations

from compatgate.documents.sources import read_paths
from compatgate.gate.matrix import By
from compatgate.gate.service import Gate
from compatgate.resources import matrix_dir

QUESTIONS = (
    ("prod-a100", {"cuda": "12.4", "cudnn": "9.1.0", "torch": "2.4.1+cu124", "arch": "sm_80"}),
    ("prod-a100", {"cuda": "11.8", "cudnn": "8.7.0", "torch": "2.3.1+cu118", "arch": "sm_80"}),
    ("inference-l4", {"cuda": "12.4", "arch": "sm_80"}),
    ("inference-l4", {"cuda": "12.4", "arch": "sm_70"}),
    ("dev-rtx", {"cuda": "99.9"}),
)


def fill(database: str) -> None:
    """Fill an empty database."""
    gate = Gate.open(database, overlays=[])
    try:
        gate.matrix.import_documents(
            read_paths([matrix_dir() / "examples"]), By("mara", "the first matrix")
        )
        _change(gate)
        for target, stack in QUESTIONS:
            body = {"target": target, "stack": stack, "image": "registry.example/team/app:1.4"}
            gate.decide(body, asked_by="ci", source="rest")
    finally:
        gate.close()


def _change(gate: Gate) -> None:
    """A second revision, so that there is something to compare."""
    stored = gate.matrix.get("Entry", "torch22-cu121").document
    spec = {**stored["spec"], "status": "revoked"}
    gate.matrix.change(
        "Entry",
        "torch22-cu121",
        {"metadata": stored["metadata"], "spec": spec},
        By("mara", "cuDNN 8 is no longer patched"),
    )
