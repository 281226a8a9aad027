"""Attestations of what a database holds, on SQLite and PostgreSQL."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from attest_keys import payload_of, signer_of
from sqlalchemy import select

from compatgate.errors import Conflict, NotFound
from compatgate.kit import clock
from compatgate.kit.principal import Authorship, Principal
from compatgate.service.app import Rooms, open_rooms
from compatgate.service.audit.attestations import Attestations, SigningOptions
from compatgate.service.gate.decisions.batch_store import Delivery
from compatgate.service.gate.decisions.batches import StoredBatch, WriterChain, decode_claims
from compatgate.service.gate.far.gate import make_requests
from compatgate.service.gate.far.schemas import DeliveryRequest
from compatgate.service.gate.questions.decider import NewDecision

QUESTION = {
    "target": "prod-a100",
    "stack": {"cuda": "12.4", "cudnn": "9.1.0", "torch": "2.4.1+cu124"},
}


@pytest.fixture
def attestations(stocked: Rooms) -> Attestations:
    signer = signer_of()
    options = SigningOptions(lambda: signer, (signer.public_key,))
    return Attestations(options, stocked.decisions.read_own, stocked.gate.still_holds)


def predicate(attestations: Attestations, verdict_id: str) -> dict[str, Any]:
    found: dict[str, Any] = payload_of(attestations.attest(verdict_id).envelope)["predicate"]
    return found


def test_a_verdict_is_attested_as_it_is_stored_and_as_the_audit_log_vouches_for_it(
    stocked: Rooms, attestations: Attestations
) -> None:
    verdict = stocked.gate.decide(QUESTION, asked_by="ci", source="rest")
    found = predicate(attestations, verdict.id)
    assert (found["id"], found["decidedAt"]) == (verdict.id, verdict.decided_at)
    digests = {one["name"]: one["digest"]["sha256"] for one in found["inputs"]}
    assert stocked.chain.verify().ok
    with stocked.gate.database.reading() as session:
        (batch,) = session.execute(select(StoredBatch.__table__)).all()
    assert decode_claims(batch.verdicts) == {verdict.id: digests["verdict"]}
    anchor = stocked.audit.list_audit(action="decisions.anchor").items[0]
    assert anchor.detail["writers"] == {batch.writer: [1, bytes(batch.hash).hex()]}


def test_the_last_of_its_decisions_confirms_it(stocked: Rooms, attestations: Attestations) -> None:
    first = stocked.gate.decide(QUESTION, asked_by="ci", source="rest")
    again = stocked.gate.decide(QUESTION, asked_by="ci", source="rest")
    assert again.id == first.id
    found = predicate(attestations, first.id)
    assert found["decidedAt"] == first.decided_at
    (last,) = stocked.decisions.list_decisions(verdict_id=first.id, limit=1).items
    assert found["confirmedAt"] == again.decided_at
    assert last.decided_at.isoformat()[:23] == again.decided_at[:23]


def test_what_is_not_stored_or_is_a_what_if_is_not_attested(
    stocked: Rooms, attestations: Attestations
) -> None:
    with pytest.raises(NotFound):
        attestations.attest(stocked.gate.preview(QUESTION).id)
    asked = {**QUESTION, "set": {"driver": "580.95.05"}}
    with pytest.raises(Conflict):
        attestations.attest(stocked.gate.decide(asked, asked_by="ci", source="rest").id)


def test_a_verdict_that_no_longer_holds_is_not_signed_again(
    stocked: Rooms, attestations: Attestations
) -> None:
    verdict = stocked.gate.decide(QUESTION, asked_by="ci", source="rest")
    attestations.attest(verdict.id)
    (name,) = set(verdict.entries.values())
    document = stocked.matrix.get("Entry", name).document
    revoked = {**document, "spec": {**document["spec"], "status": "revoked"}}
    stocked.matrix.change("Entry", name, revoked, Authorship("boss", "wrong sums"))
    with pytest.raises(Conflict, match="no longer holds"):
        attestations.attest(verdict.id)


def test_a_verdict_that_another_process_has_just_made_wrong_is_not_signed(
    stocked: Rooms, attestations: Attestations, database_url: str
) -> None:
    """A process notices a revocation of another within a second; a signature lasts for days."""
    verdict = stocked.gate.decide(QUESTION, asked_by="ci", source="rest")
    (name,) = set(verdict.entries.values())
    other = open_rooms(database_url, overlays=[])
    document = other.matrix.get("Entry", name).document
    revoked = {**document, "spec": {**document["spec"], "status": "revoked"}}
    stocked.gate.snapshot()
    other.matrix.change("Entry", name, revoked, Authorship("boss", "wrong sums"))
    other.close()
    with pytest.raises(Conflict, match="no longer holds"):
        attestations.attest(verdict.id)


def test_only_decisions_of_this_gate_confirm_a_verdict(
    stocked: Rooms, attestations: Attestations
) -> None:
    verdict = stocked.gate.decide(QUESTION, asked_by="ci", source="rest")
    row = stocked.decisions.list_decisions(limit=1).items[0]
    later = clock.now() - timedelta(seconds=1)
    said = {name: getattr(row, name) for name in NewDecision.__struct_fields__}
    chain = WriterChain("far-1")
    made = chain.make([NewDecision(**{**said, "asked_by": "x@far-1", "decided_at": later})], {})
    (sent,) = make_requests([Delivery(made, {}, late=True)])
    sent = msgspec.json.decode(msgspec.json.encode(sent), type=DeliveryRequest)
    assert stocked.deliveries.receive(sent, Principal("far-1", frozenset({"deliver"}))).stored == 1
    assert predicate(attestations, verdict.id)["confirmedAt"] == verdict.decided_at
