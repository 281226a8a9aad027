"""Bundles: the same matrix makes the same bytes, and nothing else is taken for one."""

from __future__ import annotations

import base64
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from compatgate.core.facts import Facts
from compatgate.core.facts.nvidia import Gpus
from compatgate.core.matrix import Evidence
from compatgate.core.versions import parse_version
from compatgate.documents.sources import read_paths
from compatgate.documents.validation import read_documents
from compatgate.errors import BadInput, NotFound
from compatgate.resources import matrix_dir
from compatgate.service.gate.questions.decider import decide
from compatgate.service.matrix.snapshots.snapshot import (
    BUNDLE_FORMAT,
    BundledDocument,
    Overlay,
    Payload,
    bundle_evidence,
    load_bundle,
    open_bundle,
    seal_bundle,
)

QUESTION: dict[str, Any] = {
    "target": "prod-a100",
    "stack": {"cuda": "12.1", "cudnn": "9.1.0", "torch": "2.4.1", "nccl": "2.20.5"},
}
OVERLAY = """\
schema: facts/driver_branches/v1
branches:
  - {branch: 535, eol: "2030-01-31"}
"""


@pytest.fixture
def payload(facts: Facts, gpus: Gpus) -> Payload:
    documents = read_documents(read_paths([matrix_dir() / "examples"]), gpus)
    return Payload(
        format=BUNDLE_FORMAT,
        revision=3,
        made_at="2026-11-21T12:00:00.000000Z",
        facts=facts.digest,
        overlays=(),
        documents=tuple(BundledDocument(document, 3) for document in documents),
    )


def test_equal_contents_make_equal_bytes(payload: Payload) -> None:
    assert seal_bundle(payload) == seal_bundle(payload)
    assert open_bundle(seal_bundle(payload), "b").payload == payload


def test_a_bundle_decides_without_a_database(
    payload: Payload, tmp_path: Path, now: datetime
) -> None:
    path = tmp_path / "gate.bundle"
    path.write_bytes(seal_bundle(payload))
    snapshot = load_bundle(path).snapshot()
    verdict = decide(QUESTION, snapshot, now)
    assert (verdict.target, verdict.matrix_revision) == ("prod-a100", 3)
    assert verdict.entries == {"a100-80": "torch24-cu121"}
    with pytest.raises(NotFound, match="target 'prod-a10' does not exist"):
        decide({**QUESTION, "target": "prod-a10"}, snapshot, now)


def test_a_bundle_knows_whether_this_program_has_the_same_facts(payload: Payload) -> None:
    assert open_bundle(seal_bundle(payload), "b").facts_match


def test_a_bundle_carries_the_operators_own_facts(payload: Payload) -> None:
    from msgspec.structs import replace

    sealed = seal_bundle(
        replace(payload, overlays=(Overlay("ours.yaml", OVERLAY),), facts="sha256:0")
    )
    bundle = open_bundle(sealed, "b")
    assert bundle.facts.driver_branches.branches[535].eol == "2030-01-31"
    assert bundle.facts.overlays[0].startswith("ours.yaml@")
    assert not bundle.facts_match


def test_evidence_travels_in_text(payload: Payload) -> None:
    from msgspec.structs import replace

    run = Evidence(
        "run_1",
        "smoke",
        "L4",
        parse_version("driver", "535.183.01"),
        {"torch": parse_version("torch", "2.4.1+cu121")},
        "passed",
        1_790_000_000,
    )
    sealed = seal_bundle(replace(payload, evidence=bundle_evidence([run])))
    assert open_bundle(sealed, "b").snapshot().matrix.evidence == (run,)


def _changed(content: bytes, **changes: Any) -> bytes:
    return json.dumps({**json.loads(content), **changes}).encode()


def test_a_payload_that_was_changed_is_refused(payload: Payload) -> None:
    sealed = seal_bundle(payload)
    inside = base64.b64decode(json.loads(sealed)["payload"])
    forged = base64.b64encode(inside.replace(b"revoked", b"blessed")).decode()
    with pytest.raises(BadInput, match="damaged or was tampered with"):
        open_bundle(_changed(sealed, payload=forged), "b")


def test_every_truncation_is_refused(payload: Payload) -> None:
    sealed = seal_bundle(payload)
    for length in [0, 1, *range(2, len(sealed) - 2, len(sealed) // 60)]:
        with pytest.raises(BadInput) as caught:
            open_bundle(sealed[:length], "b")
        assert caught.value.exit_code == 2


def test_a_changed_byte_anywhere_is_refused_or_means_the_same(payload: Payload) -> None:
    sealed = seal_bundle(payload)
    original = open_bundle(sealed, "b").payload
    for place in range(0, len(sealed), len(sealed) // 200):
        forged = sealed[:place] + bytes([sealed[place] ^ 1]) + sealed[place + 1 :]
        try:
            assert open_bundle(forged, "b").payload == original
        except BadInput:
            continue


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b"\xff", b"null", b"apiVersion: compatgate.dev/v1", b"[" * 100_000],
)
def test_another_file_is_not_a_bundle(content: bytes) -> None:
    with pytest.raises(BadInput, match="not a bundle"):
        open_bundle(content, "b")


def test_another_type_and_another_format_are_named(payload: Payload) -> None:
    from msgspec.structs import replace

    sealed = seal_bundle(payload)
    with pytest.raises(BadInput, match="not a bundle: it holds"):
        open_bundle(_changed(sealed, payloadType="application/vnd.in-toto+json"), "b")
    with pytest.raises(BadInput, match="format 2, expected 1"):
        open_bundle(seal_bundle(replace(payload, format=2)), "b")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="No such file"):
        load_bundle(tmp_path / "none")
    with pytest.raises(BadInput, match="Is a directory"):
        load_bundle(tmp_path)


def test_there_is_a_place_for_signatures(payload: Payload) -> None:
    envelope = json.loads(seal_bundle(payload))
    assert sorted(envelope) == ["payload", "payloadType", "sha256", "signatures"]
    assert envelope["signatures"] == []
