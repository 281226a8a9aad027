"""Snapshots: whole, immutable, and advanced by what changed."""

from __future__ import annotations

from typing import Any

import pytest

from compatgate.core.facts import Facts
from compatgate.core.facts.nvidia import Gpus
from compatgate.documents.specs import Document, Kind, TargetDoc
from compatgate.documents.validation import read_body
from compatgate.errors import NotFound, Unavailable
from compatgate.service.matrix.snapshots.snapshot import DocumentVersion, advance_snapshot, build


@pytest.fixture
def document(gpus: Gpus) -> Any:
    def make(kind: Kind, name: str, **spec: Any) -> Document:
        defaults: dict[str, dict[str, Any]] = {
            "Target": {"pools": [{"name": "p", "gpu": "L4", "driver": "550.54.15"}]},
            "Entry": {"targets": ["*"], "components": {"cuda": "12.*"}, "status": "blessed"},
        }
        body = {"metadata": {"name": name}, "spec": {**defaults[kind], **spec}}
        return read_body(body, kind, gpus)

    return make


def test_a_later_snapshot_is_the_one_that_would_be_built_anew(facts: Facts, document: Any) -> None:
    first: list[DocumentVersion] = [
        ("Target", "t", document("Target", "t"), 1),
        ("Entry", "a", document("Entry", "a"), 1),
        ("Entry", "b", document("Entry", "b"), 2),
    ]
    changes: list[DocumentVersion] = [
        ("Entry", "a", None, 3),
        ("Entry", "b", document("Entry", "b", status="revoked"), 4),
        ("Entry", "c", document("Entry", "c"), 5),
        ("Entry", "a", document("Entry", "a", status="candidate"), 6),
        ("Target", "t", None, 7),
        ("Target", "u", document("Target", "u"), 7),
    ]
    old = build(first, facts, 2)
    advanced = advance_snapshot(old, changes, 7)
    anew = build([changes[3], changes[1], changes[2], changes[5]], facts, 7)
    assert advanced.entries == anew.entries
    assert advanced.targets == anew.targets
    assert advanced.documents == anew.documents
    assert (advanced.revision, advanced.matrix.revision) == (7, 7)
    assert set(old.entries) == {"a", "b"}
    assert set(old.targets) == {"t"}


def test_an_unknown_target_is_named_with_the_near_one(facts: Facts, document: Any) -> None:
    snapshot = build([("Target", "prod-a100", document("Target", "prod-a100"), 1)], facts, 1)
    with pytest.raises(NotFound) as caught:
        snapshot.target("prod-a10")
    assert caught.value.hint == "did you mean prod-a100?"


def test_a_target_whose_gpu_the_facts_forgot_is_unavailable_and_no_other_is(
    facts: Facts, document: Any
) -> None:
    import msgspec

    good = document("Target", "good")
    text = msgspec.json.encode(document("Target", "bad")).replace(b'"L4"', b'"Voodoo2"')
    bad = msgspec.json.decode(text, type=TargetDoc)
    snapshot = build([("Target", "good", good, 1), ("Target", "bad", bad, 1)], facts, 1)
    assert snapshot.target("good").pools
    with pytest.raises(Unavailable, match="Voodoo2"):
        snapshot.target("bad")
    mended = advance_snapshot(snapshot, [("Target", "bad", good, 2)], 2)
    assert mended.target("bad")
    assert not mended.unusable
