"""Files into the matrix: all of them or nothing, and said beforehand what would change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from compatgate.documents.sources import Source, read_paths
from compatgate.documents.text import to_json, to_yaml
from compatgate.errors import Conflict, ManyProblems
from compatgate.kit.principal import Authorship
from compatgate.resources import matrix_dir
from compatgate.service.app import Rooms
from compatgate.service.matrix.snapshots.snapshot import open_bundle

Files = Callable[[str], list[Source]]
BROKEN = """\
apiVersion: compatgate.dev/v1
kind: Target
metadata: {name: fine}
spec: {pools: [{name: a, gpu: L4, driver: "550.54.15"}]}
---
apiVersion: compatgate.dev/v1
kind: Target
metadata: {name: broken}
spec:
  pools:
    - {name: a, gpu: Voodoo2, driver: "550.54.15"}
---
apiVersion: compatgate.dev/v1
kind: Entry
metadata: {name: also-broken}
spec:
  targets: [fine, prod-a10]
  components:
    cuda: 12.10
    cudnn: ">>9"
  status: blesed
"""


def test_a_file_with_five_mistakes_reports_all_five_and_changes_nothing(
    stocked: Rooms, by: Authorship, source: Files
) -> None:
    with pytest.raises(ManyProblems) as caught:
        stocked.matrix.import_documents(source(BROKEN), by)
    found = [(p.file, p.line, p.field) for p in caught.value.problems]  # type: ignore[attr-defined]
    assert found == [
        ("matrix.yaml", 11, "spec.pools[0].gpu"),
        ("matrix.yaml", 17, "spec.targets[1]"),
        ("matrix.yaml", 19, "spec.components.cuda"),
        ("matrix.yaml", 20, "spec.components.cudnn"),
        ("matrix.yaml", 21, "spec.status"),
    ]
    assert stocked.matrix.list_targets(search="fine").items == ()
    assert stocked.snapshots.refresh().revision == 1
    assert "matrix.yaml:19: spec.components.cuda: 12.10 must be in quotes" in str(caught.value)


def test_importing_again_changes_nothing(stocked: Rooms, by: Authorship) -> None:
    result = stocked.matrix.import_documents(read_paths([matrix_dir() / "examples"]), by)
    assert (result.changes, result.unchanged, result.revision) == ((), 15, None)
    assert stocked.gate.snapshot().revision == 1


def test_a_dry_run_says_what_an_import_would_do_and_does_nothing(
    stocked: Rooms, by: Authorship, source: Files
) -> None:
    text = to_yaml(stocked.matrix.export()).replace("status: candidate", "status: blessed")
    dry = stocked.matrix.import_documents(source(text), by, dry_run=True)
    assert [(c.name, c.action) for c in dry.changes] == [
        ("jax08-cu129", "change"),
        ("torch29-cu130", "change"),
    ]
    assert (dry.unchanged, dry.revision) == (13, None)
    assert stocked.snapshots.refresh().revision == 1
    real = stocked.matrix.import_documents(source(text), by)
    assert (real.changes, real.revision) == (dry.changes, 2)


@pytest.mark.parametrize("write", [to_yaml, to_json])
def test_an_export_is_an_import_of_another_gate(
    stocked: Rooms, write: Callable[..., str], source: Files, by: Authorship
) -> None:
    bodies = stocked.matrix.export()
    assert [body["kind"] for body in bodies] == ["Target"] * 4 + ["Entry"] * 10 + ["Waiver"]
    for body in reversed(bodies):
        stocked.matrix.delete(body["kind"], body["metadata"]["name"], by)
    assert stocked.matrix.export() == []
    stocked.matrix.import_documents(source(write(bodies)), by)
    assert stocked.matrix.export() == bodies


def test_files_may_name_stored_targets(stocked: Rooms, by: Authorship, source: Files) -> None:
    text = (
        "{apiVersion: compatgate.dev/v1, kind: Entry, metadata: {name: new}, spec: "
        "{targets: [prod-a100], components: {cuda: '12.*'}, status: candidate}}"
    )
    assert stocked.matrix.import_documents(source(text), by).revision == 2


def test_a_target_that_is_deleted_while_files_are_read_is_a_conflict(
    stocked: Rooms, by: Authorship, source: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    from compatgate.service.matrix.documents.imports import ChangeReader

    read_files = ChangeReader.read_files

    text = (
        "{apiVersion: compatgate.dev/v1, kind: Entry, metadata: {name: new}, spec: "
        "{targets: [lonely], components: {cuda: '12.*'}, status: candidate}}"
    )
    spec = {"pools": [{"name": "a", "gpu": "L4", "driver": "550.54.15"}]}
    stocked.matrix.create("Target", {"metadata": {"name": "lonely"}, "spec": spec}, by)

    def read_then_delete(*args: Any) -> Any:
        documents = read_files(*args)
        stocked.matrix.delete("Target", "lonely", by)
        return documents

    monkeypatch.setattr(ChangeReader, "read_files", read_then_delete)
    with pytest.raises(
        Conflict, match="Entry new names the target 'lonely', which was deleted meanwhile"
    ):
        stocked.matrix.import_documents(source(text), by)
    assert stocked.gate.snapshot().revision == 3


def test_a_target_that_entries_name_cannot_be_deleted(stocked: Rooms, by: Authorship) -> None:
    with pytest.raises(Conflict) as caught:
        stocked.matrix.delete("Target", "inference-l4", by)
    assert "still used by Entry ort123-cu12, Entry torch23-cu118, Entry vllm014-cu128" in str(
        caught.value
    )


def test_a_name_that_is_taken_is_a_conflict(
    stocked: Rooms, by: Authorship, entry_body: Callable[..., dict[str, Any]]
) -> None:
    with pytest.raises(Conflict, match="the Entry 'tf215-cu122' already exists"):
        stocked.matrix.create("Entry", entry_body("tf215-cu122"), by)


def test_a_bundle_of_a_revision_says_what_the_gate_said_then(
    stocked: Rooms, by: Authorship
) -> None:
    question = {
        "target": "prod-a100",
        "stack": {"cuda": "12.1", "cudnn": "9.1.0", "torch": "2.4.1"},
    }
    first = stocked.gate.export_bundle()
    verdict = stocked.gate.preview(question)
    stocked.matrix.delete("Entry", "torch24-cu121", by)
    assert stocked.gate.export_bundle(revision=1) == first
    assert stocked.gate.export_bundle() != first
    from compatgate.kit.clock import now
    from compatgate.service.gate.questions.decider import decide

    assert decide(question, open_bundle(first, "b").snapshot(), now()).id == verdict.id


def test_an_empty_matrix_makes_a_bundle_too(rooms: Rooms) -> None:
    assert open_bundle(rooms.gate.export_bundle(), "b").snapshot().revision == 0


@pytest.mark.parametrize(
    ("target", "stack", "entry"),
    [
        ("prod-a100", "cuda=12.4,cudnn=9.1.0,torch=2.4.1,arch=sm_80+sm_90", "torch24-cu124"),
        ("prod-a100", "cuda=12.1,cudnn=9.1.0,nccl=2.20.5,torch=2.4.1", "torch24-cu121"),
        ("prod-a100", "cuda=12.1,cudnn=8.9.7,torch=2.2.2", "torch22-cu121"),
        ("prod-a100", "cuda=12.2,cudnn=8.9.7,tensorflow=2.15.1", "tf215-cu122"),
        ("staging-h100", "cuda=12.8,cudnn=9.10.2,nccl=2.27.3,torch=2.8.0", "torch28-cu128"),
        ("staging-h100", "cuda=13.0,cudnn=9.13.0,nccl=2.27.7,torch=2.9.1", None),
        ("staging-h100", "cuda=12.9,cudnn=9.12.0,jax=0.8.0", None),
        ("inference-l4", "cuda=12.8,torch=2.9.1,vllm=0.14.0", "vllm014-cu128"),
        ("inference-l4", "cuda=12.8,cudnn=9.10.2,onnxruntime-gpu=1.23.2", "ort123-cu12"),
    ],
)
def test_the_examples_bless_stacks_that_the_vendors_facts_allow(
    stocked: Rooms, target: str, stack: str, entry: str | None
) -> None:
    from compatgate.core.stack import parse_stack_text

    verdict = stocked.gate.preview({"target": target, "stack": parse_stack_text(stack)})
    decided_by = next(iter(verdict.entries.values()), None)  # candidates decide nothing
    assert decided_by == entry
    broken = [f for f in verdict.findings if f.outcome == "fail" and f.rule < "CG8"]
    assert broken == []
