"""A central gate stores each batch of a far gate once, and only as the writer's chain goes on."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from sqlalchemy import text

from compatgate.core.evaluate import format_moment, identify
from compatgate.core.request import Policy
from compatgate.core.rule import Checked, Verdict
from compatgate.documents.convert import to_policy
from compatgate.documents.specs import TargetDoc, decode
from compatgate.errors import BadInput, CompatgateError, Unavailable
from compatgate.kit import clock
from compatgate.kit.database.database import Database
from compatgate.kit.principal import AccessRefused, Principal
from compatgate.service.gate.decisions.batch_store import Delivery
from compatgate.service.gate.decisions.batches import WriterChain
from compatgate.service.gate.far.gate import make_requests
from compatgate.service.gate.far.receiving import (
    ChainForked,
    ChainGap,
    DeliveryDesk,
    VerdictMismatch,
)
from compatgate.service.gate.far.schemas import DeliveryRequest
from compatgate.service.gate.questions.decider import NewDecision
from compatgate.service.matrix.documents.revisions import Edit, make_revision
from compatgate.service.recovery.verification import AuditChain

BEGAN = datetime(2026, 11, 3, 9, tzinfo=UTC)
FAR = Principal("far-1", frozenset({"deliver"}))
TARGET = decode(
    "Target",
    '{"apiVersion": "compatgate.dev/v1", "kind": "Target", "metadata": {"name": "prod"}, "spec":'
    ' {"pools": [{"name": "a", "gpu": "A100", "driver": "580.65.06"}]}}',
)
assert isinstance(TARGET, TargetDoc)


def verdict_of(number: int, **others: Any) -> Verdict:
    """Return a verdict of the target `prod`, with its id."""
    found = Verdict(
        id="",
        verdict="pass",
        allowed=True,
        mode="enforce",
        target="prod",
        findings=(),
        checked=Checked((), ()),
        stack={"n": number},
        pools=(),
        matrix_revision=1,
        facts="facts",
        decided_at=format_moment(BEGAN),
    )
    found = msgspec.structs.replace(found, **others)
    return msgspec.structs.replace(found, id=identify(found, to_policy(TARGET.spec.policy)))


VERDICTS = [verdict_of(number) for number in range(9)]
IDS = [verdict.id for verdict in VERDICTS]


def decision(number: int, verdict: int = 1, target: str = "prod") -> NewDecision:
    at = BEGAN + timedelta(seconds=number)
    asked_by = f"{number}@far-1"
    return NewDecision(IDS[verdict], at, target, "pass", True, 1, None, asked_by, "rest", 5)


def body(verdict: int, **others: Any) -> str:
    return msgspec.json.encode({**VERDICTS[verdict].to_json(), **others}).decode()


class FarGate:
    """The chain of a far gate, and its requests."""

    def __init__(self, name: str = "far-1") -> None:
        self.chain = WriterChain(name)

    def batch(self, *numbers: int, verdict: int = 1, **bodies: str) -> Delivery:
        found = bodies or {IDS[verdict]: body(verdict)}
        made = self.chain.make([decision(number, verdict) for number in numbers], found)
        self.chain.take(made)
        return Delivery(made, found, late=True)


def request(*batches: Delivery) -> DeliveryRequest:
    """Return what a far gate sends, after its way over JSON."""
    (found,) = make_requests(batches)
    return msgspec.json.decode(msgspec.json.encode(found), type=DeliveryRequest)


def changed(sent: DeliveryRequest, **members: Any) -> DeliveryRequest:
    """Return a request whose first batch was changed on its way."""
    batch = msgspec.structs.replace(sent.batches[0], **members)
    return msgspec.structs.replace(sent, batches=[batch, *sent.batches[1:]])


@pytest.fixture
def desk(database: Database) -> Iterator[DeliveryDesk]:
    with database.writing() as session:
        edits = [Edit(None, TARGET)]
        make_revision(session, edits, author="t", reason="t", action="create", at=BEGAN)
    made = DeliveryDesk(database)
    yield made
    made.close()


def logged(database: Database) -> list[str]:
    with database.reading() as session:
        rows = session.execute(text("SELECT asked_by FROM decisions ORDER BY id"))
        return [row.asked_by.removesuffix("@far-1") for row in rows]


def test_a_batch_is_stored_once_however_often_it_comes(
    database: Database, desk: DeliveryDesk
) -> None:
    far = FarGate()
    first, second, third = far.batch(1, 2), far.batch(3), far.batch(4, verdict=2)
    found = desk.receive(request(first, second), FAR)
    assert (found.writer, found.sequence) == (far.chain.writer, 2)
    assert (found.stored, found.known) == (2, 0)
    found = desk.receive(request(first, second, third), FAR)
    assert (found.sequence, found.stored, found.known) == (3, 1, 2)
    other = FarGate()
    assert desk.receive(request(other.batch(5)), FAR).stored == 1, "a restarted process"
    assert logged(database) == ["1", "2", "3", "4", "5"]
    desk.close()
    report = AuditChain(database).verify(full=True)
    assert (report.ok, report.batches, report.unanchored) == (True, 4, 0), report.problems


def test_a_chain_that_does_not_go_on_is_refused(database: Database, desk: DeliveryDesk) -> None:
    far, copied = FarGate(), FarGate()
    copied.chain.writer = far.chain.writer
    first, second, third = far.batch(1), far.batch(2), far.batch(3)
    desk.receive(request(first), FAR)
    with pytest.raises(ChainForked, match="batch 1 of writer far-1:"):
        desk.receive(request(copied.batch(8)), FAR)
    with pytest.raises(ChainForked, match="continues another batch"):
        desk.receive(request(copied.batch(9)), FAR)
    with pytest.raises(ChainGap, match=r"batch 2 of writer far-1:.* is not stored"):
        desk.receive(request(third), FAR)
    with pytest.raises(ChainGap, match="neither the request nor this gate has"):
        desk.receive(request(FarGate().batch(4, verdict=3, **{IDS[4]: body(4)})), FAR)
    assert desk.receive(request(second, third), FAR).stored == 2
    assert logged(database) == ["1", "2", "3"]


def _in_future(sent: DeliveryRequest) -> DeliveryRequest:
    late = clock.now() + timedelta(minutes=5)
    one = msgspec.structs.replace(sent.batches[0].decisions[0], decided_at=late)
    return changed(sent, decisions=[one])


def _of(name: str, value: Any) -> Callable[[DeliveryRequest], DeliveryRequest]:
    def change(sent: DeliveryRequest) -> DeliveryRequest:
        one = msgspec.structs.replace(sent.batches[0].decisions[0], **{name: value})
        return changed(sent, decisions=[one])

    return change


def _at(text: str) -> Callable[[DeliveryRequest], DeliveryRequest]:
    """Change the time of a decision, past what a far gate's own encoder writes."""
    at = msgspec.json.decode(f'"{text}"', type=datetime)
    return _of("decided_at", at)


def _planted(**lie: Any) -> Callable[[DeliveryRequest], DeliveryRequest]:
    return lambda sent: changed(sent, verdicts={IDS[1]: body(1, **lie)})


REFUSED: list[tuple[Callable[[DeliveryRequest], DeliveryRequest], type[CompatgateError], str]] = [
    (_of("asked_by", "ci@far-1"), BadInput, r"batches\[0\].hash: is not the hash of the batch"),
    (_of("asked_by", "a\nb@far-1"), BadInput, r"batches\[0\].asked_by: has characters"),
    (_of("asked_by", "ci"), BadInput, "asked_by: '.*' does not name the far gate"),
    (_of("asked_by", "ci@far-2"), BadInput, "asked_by: '.*' does not name the far gate"),
    (_of("allowed", False), VerdictMismatch, "the decision contradicts its verdict"),
    (_in_future, Unavailable, r"batches\[0\].decided_at: '.*' is in the future"),
    (_at("9999-12-31T23:59:59-23:59"), Unavailable, "is in the future"),
    *(
        (_at(text), VerdictMismatch, "decided before 2026-11-03T08:59:00.*its revision was made")
        for text in ("2026-11-03T08:58:59Z", "1970-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59")
    ),
    *(
        (_planted(decided_at=text), VerdictMismatch, "is no time since 2026-11-03T08:59:00")
        for text in (
            "",
            "x",
            "2026-11-03T09:00:00",
            "2026-11-03T08:58:59Z",
            "9999-01-01T00:00:00Z",
            "0001-01-01T00:00:00+23:59",
        )
    ),
    (
        _planted(stack={"n": random.Random(1).randbytes(70_000).hex()}),
        VerdictMismatch,
        "at most 65536",
    ),
    (lambda sent: changed(sent, previous="1" * 64), BadInput, "the first batch continues none"),
    (
        lambda sent: msgspec.structs.replace(sent, batches=sent.batches[::-1]),
        BadInput,
        r"batches\[1\].sequence: 1 does not follow the batch before",
    ),
    (
        lambda sent: changed(sent, verdicts={IDS[1]: body(2)}),
        VerdictMismatch,
        f"batches.0..verdicts.{IDS[1]}: the verdict does not have this id",
    ),
    *(
        (_planted(**lie), VerdictMismatch, "the verdict does not have this id")
        for lie in ({"mode": "audit"}, {"stack": {"n": 7}}, {"degraded": True})
    ),
    (
        lambda sent: changed(sent, verdicts={IDS[1]: body(1, target="other")}),
        ChainGap,
        "target other is not in revision 1",
    ),
    (lambda sent: changed(sent, verdicts={IDS[1]: "{"}), BadInput, "is not a verdict"),
    (
        lambda sent: msgspec.structs.replace(sent, writer="far-2:" + "0" * 16),
        AccessRefused,
        "belongs to the token far-2",
    ),
]


def test_what_contradicts_itself_or_belongs_to_others_is_refused(
    database: Database, desk: DeliveryDesk
) -> None:
    far = FarGate()
    sent = request(far.batch(1), far.batch(2))
    for change, error, says in REFUSED:
        with pytest.raises(error, match=says):
            desk.receive(change(sent), FAR)
    for caller in (
        Principal("far-1", frozenset({"deliver"}), kind="anonymous"),
        Principal("far-1", frozenset({"deliver"}), targets=("staging-*",)),
    ):
        with pytest.raises(AccessRefused):
            desk.receive(sent, caller)
    assert logged(database) == []
    assert desk.receive(sent, FAR).stored == 2


def test_a_decision_contradicts_no_stored_verdict(database: Database, desk: DeliveryDesk) -> None:
    desk.receive(request(FarGate().batch(1)), FAR)
    other = FarGate()
    made = other.chain.make([msgspec.structs.replace(decision(2), outcome="fail")], {})
    with pytest.raises(VerdictMismatch, match="contradicts its verdict"):
        desk.receive(request(Delivery(made, {}, late=True)), FAR)
    assert logged(database) == ["1"]


@pytest.mark.parametrize(
    ("lie", "error", "says"),
    [
        ({"verdict": "fail"}, VerdictMismatch, "contradicts its findings, or the policy"),
        ({"allowed": False}, VerdictMismatch, "contradicts its findings, or the policy"),
        ({"mode": "audit"}, VerdictMismatch, "contradicts its findings, or the policy"),
        ({"matrix_revision": 2}, ChainGap, "revision 2 is not made yet: 1 is the last one"),
        ({"target": None, "matrix_revision": 9}, ChainGap, "revision 9 is not made yet"),
    ],
)
def test_a_verdict_that_no_gate_gives_is_refused_whatever_its_id(
    database: Database, desk: DeliveryDesk, lie: dict[str, Any], error: Any, says: str
) -> None:
    planted = verdict_of(1, **lie)
    far = FarGate()
    sent = msgspec.json.encode(planted.to_json()).decode()
    made = far.batch(1, **{IDS[1]: body(1), planted.id: sent})
    with pytest.raises(error, match=says):
        desk.receive(request(made), FAR)
    assert logged(database) == []


def test_a_limited_token_delivers_no_verdict_of_another_target(
    database: Database, desk: DeliveryDesk
) -> None:
    limited = Principal("far-1", frozenset({"deliver"}), targets=("staging-*",))
    far = FarGate()
    own = verdict_of(1, target=None)
    own = msgspec.structs.replace(own, id=identify(own, Policy()))
    about = NewDecision(own.id, BEGAN, None, "pass", True, 1, None, "ci@far-1", "rest", 5)
    own_body = msgspec.json.encode(own.to_json()).decode()
    for bodies, refused in (({IDS[2]: body(2)}, True), ({}, False)):
        found = {own.id: own_body, **bodies}
        made = Delivery(far.chain.make([about], found), found, late=True)
        if refused:
            with pytest.raises(AccessRefused):
                desk.receive(request(made), limited)
        else:
            assert desk.receive(request(made), limited).stored == 1


def test_verification_finds_a_decision_that_contradicts_its_verdict(
    database: Database, desk: DeliveryDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DeliveryDesk, "_check_verdicts", lambda *_: None)  # as before
    far = FarGate()
    made = far.chain.make(
        [decision(1), msgspec.structs.replace(decision(2), allowed=False)], {IDS[1]: body(1)}
    )
    desk.receive(request(Delivery(made, {IDS[1]: body(1)}, late=True)), FAR)
    report = AuditChain(database).verify(full=True)
    assert [problem.partition(": ")[2] for problem in report.problems] == [
        f"contradicts verdict {IDS[1]}"
    ]


def test_requests_at_the_same_time_share_a_transaction_and_one_refused_harms_no_other(
    database: Database, desk: DeliveryDesk
) -> None:
    gates = [FarGate() for _ in range(8)]
    for gate in gates:
        desk.receive(request(gate.batch(0)), FAR)
    gates[3].batch(1)  # lost: its next one does not go on
    sent = [request(gate.batch(9)) for gate in gates]
    found: dict[int, Any] = {}

    def deliver(place: int) -> None:
        try:
            found[place] = desk.receive(sent[place], FAR).stored
        except ChainGap:
            found[place] = "gap"

    threads = [threading.Thread(target=deliver, args=(place,)) for place in range(8)]
    with desk._turn:
        for thread in threads:
            thread.start()
        while len(desk._queue) < len(threads):
            time.sleep(0.01)
    for thread in threads:
        thread.join(30)
    assert found == {place: "gap" if place == 3 else 1 for place in range(8)}
    assert Counter(logged(database)) == {"0": 8, "9": 7}


def test_requests_are_divided_by_writer_number_and_size() -> None:
    far, other = FarGate(), FarGate()
    small = [far.batch(number) for number in range(3)]
    long = far.batch(3, **{IDS[1]: body(1, text="x" * 500_000)})
    found = list(make_requests([*small, long, other.batch(1), far.batch(5)]))
    assert [len(one["batches"]) for one in found] == [3, 1, 1, 1]
    assert list(make_requests([])) == []
