"""An entry is blessed with the evidence that a policy asks for, or says why it is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from canary_runs import DRIVER, GPU

from compatgate.documents.sources import Source
from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms
from compatgate.service.matrix.documents.blessing import EvidenceNeeded
from compatgate.service.matrix.documents.imports import SyncOptions

Body = Callable[..., dict[str, Any]]
WHY = "in production since March"


@pytest.fixture
def torch24(rooms: Rooms, by: Authorship, target_body: Body, entry_body: Body) -> Body:
    """Return documents of an entry for a target that asks for evidence."""
    pool = {"name": "a100", "gpu": GPU, "driver": DRIVER}
    policy = {"canary": {"require": True}}
    rooms.matrix.change("Target", "prod", target_body("prod", pools=[pool], policy=policy), by)

    def make(status: str = "blessed", **spec: Any) -> dict[str, Any]:
        about = {"targets": ["prod"], "components": {"torch": "~=2.4.0"}, "status": status}
        return entry_body("torch24", **(about | spec))

    return make


def file(body: dict[str, Any]) -> list[Source]:
    about = {"apiVersion": "compatgate.dev/v1", "kind": "Entry"}
    return [Source("matrix.yaml", json.dumps(about | body))]


def test_every_way_to_bless_without_required_evidence_is_refused(
    rooms: Rooms, by: Authorship, torch24: Body
) -> None:
    blessed = torch24()
    with pytest.raises(EvidenceNeeded, match=rf"suite smoke for torch24 on prod, {GPU}"):
        rooms.matrix.create("Entry", blessed, by)
    with pytest.raises(EvidenceNeeded):
        rooms.matrix.import_documents(file(blessed), by)
    rooms.matrix.create("Entry", torch24("candidate"), by)
    revision = rooms.gate.snapshot().revision
    for attempt in (
        lambda: rooms.matrix.change("Entry", "torch24", blessed, by),
        lambda: rooms.matrix.restate("torch24", "blessed", by),
        lambda: rooms.matrix.sync(
            file(blessed), SyncOptions("git", take_over=True), by
        ),
    ):  # fmt: skip
        with pytest.raises(EvidenceNeeded, match="has not passed"):
            attempt()
    assert rooms.gate.snapshot().revision == revision, "nothing was written"


def test_an_override_blesses_and_stays_until_the_status_changes(
    rooms: Rooms, by: Authorship, torch24: Body
) -> None:
    rooms.matrix.create("Entry", torch24("candidate"), by)
    made = rooms.matrix.restate("torch24", "blessed", by, evidence_override=WHY)
    assert made.document["spec"]["evidenceOverride"] == WHY
    labelled = made.document | {"metadata": {"name": "torch24", "labels": {"team": "ml"}}}
    made = rooms.matrix.change("Entry", "torch24", labelled, by)
    assert made.document["spec"]["evidenceOverride"] == WHY
    assert WHY in json.dumps(rooms.matrix.get("Entry", "torch24").document)
    gone = rooms.matrix.restate("torch24", "revoked", by)
    assert "evidenceOverride" not in gone.document["spec"]


def test_a_failed_run_is_named(
    rooms: Rooms, by: Authorship, torch24: Body, run: Callable[..., str]
) -> None:
    rooms.matrix.create("Entry", torch24("candidate"), by)
    failed = run("failed")
    with pytest.raises(EvidenceNeeded, match=f"run {failed} failed"):
        rooms.matrix.restate("torch24", "blessed", by)


def test_a_run_that_passed_lets_the_entry_be_blessed(
    rooms: Rooms, by: Authorship, torch24: Body, run: Callable[..., str]
) -> None:
    rooms.matrix.create("Entry", torch24("candidate"), by)
    run()
    blessed = rooms.matrix.restate("torch24", "blessed", by)
    assert "evidenceOverride" not in blessed.document["spec"]
    wider = torch24(components={"torch": ">=2.4"})
    assert rooms.matrix.change("Entry", "torch24", wider, by), "the run measured this, too"
    with pytest.raises(EvidenceNeeded):
        rooms.matrix.change("Entry", "torch24", torch24(components={"torch": ">=2.5"}), by)


def test_where_no_policy_asks_a_blessing_needs_nothing(
    rooms: Rooms, by: Authorship, entry_body: Body
) -> None:
    made = rooms.matrix.create("Entry", entry_body("free", targets=["prod"]), by)
    assert made.document["spec"]["status"] == "blessed"
