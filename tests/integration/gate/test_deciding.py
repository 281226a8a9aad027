"""The gate on a database: decisions, their log, and answers about the past."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from compatgate.errors import BadInput, NotFound
from compatgate.kit import clock
from compatgate.kit.database import tables
from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms, open_rooms
from compatgate.service.gate.decisions.batches import NUMBERS
from compatgate.service.gate.questions.decider import decide
from compatgate.service.matrix.snapshots.snapshot import open_bundle

Body = Callable[..., dict[str, Any]]
STACK = {"cuda": "12.1", "cudnn": "9.1.0", "torch": "2.4.1", "nccl": "2.20.5", "arch": ["sm_80"]}
QUESTION: dict[str, Any] = {"target": "prod-a100", "stack": STACK}


def _ask(rooms: Rooms, **changes: Any) -> Any:
    return rooms.gate.decide({**QUESTION, **changes}, asked_by="ci", source="rest")


def test_a_blessed_stack_is_allowed_by_the_entry_that_names_it(stocked: Rooms) -> None:
    verdict = _ask(stocked)
    assert verdict.allowed, verdict.findings
    assert verdict.entries == {"a100-80": "torch24-cu121"}
    assert (verdict.target, verdict.mode, verdict.matrix_revision) == ("prod-a100", "enforce", 1)


def test_a_stack_that_nothing_blesses_is_denied(stocked: Rooms) -> None:
    verdict = _ask(stocked, stack={**STACK, "torch": "2.5.1"})
    assert not verdict.allowed
    assert "CG801" in {finding.rule for finding in verdict.failing}


def test_what_if_changes_every_pool_of_the_target(stocked: Rooms) -> None:
    verdict = stocked.gate.preview(
        {"target": "staging-h100", "stack": STACK, "set": {"driver": "470.57.02"}}
    )
    assert {pool["driver"] for pool in verdict.pools} == {"470.57.02"}
    assert verdict.verdict == "fail"
    assert (
        stocked.gate.preview({"target": "staging-h100", "stack": STACK}).pools[0]["driver"]
        == "580.95.05"
    )


def test_an_unknown_target_is_named_with_the_near_one(stocked: Rooms) -> None:
    with pytest.raises(NotFound) as caught:
        _ask(stocked, target="prod-a10")
    assert caught.value.field == "target"
    assert caught.value.hint == "did you mean prod-a100?"
    assert stocked.decisions.list_decisions().items == ()


@pytest.mark.parametrize(
    "question",
    [b"", b"{", b"[]", b"null", b"\xff", b'{"target": "\\ud800"}', b"[" * 100_000, b"NaN"],
)
def test_a_question_that_is_not_json_is_bad_input(rooms: Rooms, question: bytes) -> None:
    with pytest.raises(BadInput):
        rooms.gate.answer(question, asked_by="ci", source="rest")


@pytest.mark.parametrize("body", [{"x": object()}, {"x": float}, {"\ud800": 1}, {"x": "\ud800"}])
def test_a_body_that_is_not_json_is_bad_input(rooms: Rooms, body: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        rooms.gate.decide(body, asked_by="ci", source="rest")


def test_the_same_question_has_the_same_id_and_is_logged_each_time(stocked: Rooms) -> None:
    raw = msgspec.json.encode(QUESTION)
    first = stocked.gate.answer(raw, asked_by="a", source="rest")
    again = stocked.gate.answer(raw, asked_by="b", source="hook:kubernetes")
    assert (first.cached, again.cached) == (False, True)
    assert first.verdict.id == again.verdict.id
    body = msgspec.json.decode(again.body)
    assert body["decided_at"] >= msgspec.json.decode(first.body)["decided_at"]
    rows = stocked.decisions.list_decisions().items
    assert [(r.id, r.asked_by, r.source) for r in rows] == [
        (2000, "b", "hook:kubernetes"),
        (1000, "a", "rest"),
    ]
    row = stocked.decisions.show_decision(1000)
    assert (row.target, row.outcome, row.allowed, row.matrix_revision) == (
        "prod-a100",
        first.verdict.verdict,
        first.verdict.allowed,
        1,
    )
    assert abs(row.decided_at - clock.now()) < timedelta(minutes=1)


def test_a_verdict_is_kept_as_it_was_first_given(stocked: Rooms) -> None:
    first = stocked.gate.answer(msgspec.json.encode(QUESTION), asked_by="a", source="rest")
    stocked.gate.answer(msgspec.json.encode(QUESTION), asked_by="a", source="rest")
    assert stocked.decisions.show_verdict(first.verdict.id) == msgspec.json.decode(first.body)
    with pytest.raises(NotFound):
        stocked.decisions.show_verdict("vd_none")


def test_a_preview_is_the_same_verdict_and_leaves_no_trace(stocked: Rooms) -> None:
    previewed = stocked.gate.preview(QUESTION)
    assert stocked.decisions.list_decisions().items == ()
    assert _ask(stocked).id == previewed.id


def test_a_change_of_the_matrix_changes_the_next_answer(stocked: Rooms, by: Authorship) -> None:
    assert _ask(stocked).allowed
    document = stocked.matrix.get("Entry", "torch24-cu121").document
    revoked = {**document, "spec": {**document["spec"], "status": "revoked"}}
    stocked.matrix.change("Entry", "torch24-cu121", revoked, by)
    verdict = _ask(stocked)
    assert not verdict.allowed
    assert verdict.matrix_revision == 2
    assert "CG802" in {finding.rule for finding in verdict.failing}


def test_a_change_by_another_process_is_noticed_soon(
    stocked: Rooms, database_url: str, by: Authorship, monkeypatch: pytest.MonkeyPatch
) -> None:
    _ask(stocked)
    other = open_rooms(database_url, overlays=[])
    other.matrix.delete("Waiver", "legacy-ocr", by)
    other.close()
    monkeypatch.setattr("compatgate.service.matrix.snapshots.reader.CHECK_SECONDS", 0.0)
    assert stocked.gate.snapshot().revision == 2
    assert _ask(stocked).matrix_revision == 2


def test_a_process_that_begins_with_a_snapshot_looks_first_whether_it_still_holds(
    stocked: Rooms, database_url: str, by: Authorship
) -> None:
    known = stocked.gate.snapshot()
    worker = open_rooms(database_url, overlays=[])
    worker.snapshots.begin_with(known)
    assert worker.gate.snapshot() is known
    stocked.matrix.delete("Waiver", "legacy-ocr", by)
    late = open_rooms(database_url, overlays=[])
    late.snapshots.begin_with(known)
    assert _ask(late).matrix_revision == 2
    worker.close()
    late.close()


def test_the_latest_revision_is_asked_for_at_most_four_times_a_second(
    stocked: Rooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    from compatgate.service.matrix.documents import revisions

    calls = []
    real = revisions.latest_revision
    monkeypatch.setattr(revisions, "latest_revision", lambda s: calls.append(1) or real(s))
    began = clock.now()
    while clock.now() - began < timedelta(seconds=0.4):
        stocked.gate.snapshot()
    assert len(calls) <= 3


def test_a_waived_finding_is_allowed_until_its_last_day(
    stocked: Rooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = {"cuda": "12.1", "cudnn": "8.9.7", "torch": "2.2.2", "arch": ["sm_80"]}
    body = {"target": "prod-a100", "stack": stack, "image": "registry.example/ocr/app:1"}

    def rules_on(day: str) -> dict[str, str]:
        moment = datetime.fromisoformat(f"{day}T12:00:00+00:00")
        return {f.rule: f.outcome for f in stocked.gate.what_would(body, at=moment).findings}

    monkeypatch.setattr(stocked.snapshots, "at", lambda *_: stocked.gate.snapshot())
    assert rules_on("2027-01-31")["CG803"] == "waived"
    assert rules_on("2027-02-01")["CG803"] == "warn"


def test_what_the_gate_would_have_said_is_one_query_away(
    rooms: Rooms, by: Authorship, target_body: Body, entry_body: Body
) -> None:
    policy = {"requireEntry": True}
    rooms.matrix.create("Target", target_body("t", policy=policy), by)
    before = clock.now()
    rooms.matrix.create("Entry", entry_body("e", targets=["t"]), by)
    body = {"target": "t", "stack": {"cuda": "12.4"}}
    assert "CG801" in {f.rule for f in rooms.gate.what_would(body, at=1).findings}
    assert "CG801" not in {f.rule for f in rooms.gate.what_would(body, at=2).findings}
    then = rooms.gate.what_would(body, at=before)
    assert then.matrix_revision == 1
    assert datetime.fromisoformat(then.decided_at) <= before
    with pytest.raises(NotFound, match="target 't' does not exist"):
        rooms.gate.what_would(body, at=datetime(2020, 1, 1, tzinfo=UTC))
    with pytest.raises(NotFound, match="revision 9 does not exist"):
        rooms.gate.what_would(body, at=9)
    assert rooms.decisions.list_decisions().items == ()


def test_decisions_are_filtered_by_what_was_asked_and_answered(stocked: Rooms) -> None:
    _ask(stocked)
    _ask(stocked, stack={"cuda": "11.8"}, image="registry.example/x:1")
    stocked.gate.decide({"pool": {"gpu": "L4", "driver": "550.54.15"}, "stack": {"cuda": "12.4"}},
                   asked_by="bob", source="cli")  # fmt: skip

    def ids(**filters: Any) -> list[int]:
        """The numbers of the batches, one for each decision."""
        return [row.id // NUMBERS for row in stocked.decisions.list_decisions(**filters).items]

    assert ids() == [3, 2, 1]
    assert ids(target="prod-a100") == [2, 1]
    assert ids(allowed=False) == [2]
    assert ids(verdict="fail") == [2]
    assert ids(asked_by="bob", source="cli") == [3]
    assert ids(image="registry.example/x:1") == [2]
    assert ids(since=clock.now()) == []
    assert ids(until=clock.now()) == [3, 2, 1]
    page = stocked.decisions.list_decisions(limit=2)
    assert ids(cursor=page.next) == [1]
    with pytest.raises(NotFound):
        stocked.decisions.show_decision(99)


@pytest.mark.parametrize(
    "odd", ["nul\0", "line\nfeed", "\x1b[31m", "x" * 5000, "naïve 😀", "\u2028"]
)
def test_odd_text_in_a_question_neither_breaks_the_log_nor_the_chain(
    stocked: Rooms, odd: str
) -> None:
    stocked.gate.decide({**QUESTION, "image": f"r/{odd}"}, asked_by=odd, source=odd)
    (row,) = stocked.decisions.list_decisions().items
    assert row.image is not None
    assert row.image.isprintable()
    assert len(row.image) <= 512
    assert stocked.decisions.show_verdict(row.verdict_id)["image"] == f"r/{odd}"
    assert stocked.chain.verify().ok


def test_deciding_from_a_database_without_a_server_is_logged_there(
    stocked: Rooms, database_url: str
) -> None:
    with closing(open_rooms(database_url)) as rooms:
        verdict = rooms.gate.decide(QUESTION, asked_by="me", source="cli")
    assert verdict.id == _ask(stocked).id
    assert [row.asked_by for row in stocked.decisions.list_decisions().items] == ["ci", "me"]


def test_readiness_says_what_deciding_rests_on(stocked: Rooms) -> None:
    ready = stocked.gate.check_ready()
    assert (ready["revision"], ready["targets"], ready["unusable_targets"]) == (1, 4, {})
    assert ready["facts"].startswith("sha256:")
    assert ready["schema"] == tables.expected_version()


def test_strictness_about_entries_is_stored_exported_and_bundled(
    rooms: Rooms, by: Authorship, target_body: Body, entry_body: Body
) -> None:
    policy = {"requireEntry": True, "entries": "strict"}
    rooms.matrix.create("Target", target_body("prod", policy=policy), by)
    rooms.matrix.create("Entry", entry_body("e", components={"torch": "2.4.*"}), by)
    stack = {"cuda": "12.4", "torch": "2.4.1+cu124"}
    asked = {"target": "prod", "stack": {**stack, "xformers": "0.0.35"}}
    exported = rooms.matrix.export()[0]["spec"]["policy"]
    bundle = open_bundle(rooms.gate.export_bundle(), "b.json")
    for verdict in (rooms.gate.preview(asked), decide(asked, bundle.snapshot(), clock.now())):
        (finding,) = [f for f in verdict.findings if f.rule == "CG801"]
        assert "e matches, but does not name xformers" in finding.message
    assert exported["entries"] == "strict"
    assert "CG801" in rooms.gate.preview({"target": "prod", "stack": stack}).checked.passed
