"""Random changes, proposals and reverts: what was decided then is decided there again.

``COMPATGATE_RANDOM_CHANGES=1000`` makes the first walk as long as it should be once in a while.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from database_template import new_database
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from compatgate.core.facts import Facts
from compatgate.errors import BadInput, Conflict, NotFound
from compatgate.kit.database.database import Database
from compatgate.kit.principal import Authorship, Principal
from compatgate.service.app import Rooms
from compatgate.service.gate.questions.service import make_gate
from compatgate.service.matrix.documents.schemas import ENTRY, TARGET, WAIVER
from compatgate.service.matrix.proposals.schemas import ProposalRequest

CHANGES = int(os.environ.get("COMPATGATE_RANDOM_CHANGES", "30"))
TARGETS, ENTRIES, WAIVERS = ("open", "pair"), ("e1", "e2", "e3"), ("w1", "w2")
DRIVERS = ("535.183.01", "550.54.15", "570.124.06", "580.95.05")
CUDAS = ("12.2", "12.4", "12.8")
STATUSES = ("candidate", "blessed", "deprecated", "revoked")
QUESTIONS = [
    {"target": target, "stack": {"cuda": cuda, "arch": ["sm_80"]}}
    for target in TARGETS
    for cuda in CUDAS
]
PEOPLE = {name: Principal(name, frozenset({"bless"})) for name in ("ann", "bob", "kim")}


def document(kind: str, example: dict[str, Any], name: str, **spec: Any) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(json.dumps(example))
    del body["reason"]
    body["metadata"]["name"] = name
    body["spec"] |= spec
    return {"apiVersion": "compatgate.dev/v1", "kind": kind, **body}


BY = Authorship("ann", "for the test", PEOPLE["ann"])


class Walk:
    """A gate whose matrix changes at random, and what it answered at each revision.

    Args:
        gate: on a database of its own.
        pick: chooses one of a sequence.
    """

    def __init__(self, rooms: Rooms, pick: Callable[[Any], Any]) -> None:
        self.rooms = rooms
        self.pick = pick
        self.answers: dict[int, list[Any]] = {}
        self.exports: dict[int, Any] = {0: []}
        self.tries = 0
        by = self.by("ann")
        for name in TARGETS:
            policy = {"requireEntry": True, "approvals": 2 if name == "pair" else 1}
            self.rooms.matrix.create("Target", document("Target", TARGET, name, policy=policy), by)
            self.record()

    def by(self, name: str | None = None) -> Authorship:
        name = name or self.pick(sorted(PEOPLE))
        return Authorship(name, f"try {self.tries}", PEOPLE[name])

    def record(self) -> None:
        """Keep what the gate answers at a new revision; nothing else may have changed it."""
        revision = self.rooms.gate.snapshot().revision
        if revision not in self.answers:
            self.answers[revision] = [plain(self.rooms.gate.preview, one) for one in QUESTIONS]
            self.exports[revision] = self.rooms.matrix.export()

    def step(self) -> None:
        """Try one change; the gate may refuse it."""
        self.tries += 1
        before = self.rooms.gate.snapshot().revision
        often = (self.change, self.propose, self.review, self.merge)
        act = self.pick((*often, *often, self.delete, self.revert))
        try:
            act()
        except (Conflict, NotFound, BadInput):
            assert self.rooms.matrix.list_revisions(limit=1).items[0].number == before
        assert self.rooms.gate.snapshot().revision - before in (0, 1)
        self.record()

    def edited(self) -> dict[str, Any]:
        kind = self.pick(("Target", "Entry", "Entry", "Waiver"))
        if kind == "Target":
            name = self.pick(TARGETS)
            body: dict[str, Any] = self.rooms.matrix.get("Target", name).document
            body["spec"]["pools"][0]["driver"] = self.pick(DRIVERS)
            return body
        targets = self.pick((["open"], ["pair"], ["open", "pair"], ["*"]))
        if kind == "Entry":
            components = {"cuda": f"{self.pick(CUDAS)}.*"}
            status = self.pick(STATUSES)
            name = self.pick(ENTRIES)
            spec = {"targets": targets, "components": components, "status": status}
            return document("Entry", ENTRY, name, **spec)
        rules = [self.pick(("CG801", "CG802", "CG803"))]
        return document("Waiver", WAIVER, self.pick(WAIVERS), targets=targets, rules=rules)

    def change(self) -> None:
        body = self.edited()
        kind, name = body["kind"], body["metadata"]["name"]
        try:
            self.rooms.matrix.change(kind, name, body, self.by())
        except NotFound:
            self.rooms.matrix.create(kind, body, self.by())

    def delete(self) -> None:
        kind, names = self.pick((("Entry", ENTRIES), ("Waiver", WAIVERS)))
        self.rooms.matrix.delete(kind, self.pick(names), self.by())

    def propose(self) -> None:
        merge = self.pick(("manual", "approved"))
        request = ProposalRequest(documents=[self.edited()], merge=merge)
        self.rooms.proposals.propose(request, self.by())

    def some_proposal(self) -> str:
        found = [one for one in self.rooms.proposals.list().items if one.row.is_open]
        if not found:
            raise NotFound("there is no open proposal")
        number: str = self.pick(found).row.id
        return number

    def review(self) -> None:
        number, by = self.some_proposal(), self.by().principal
        assert by
        if self.pick((True, True, True, False)):
            with suppress(PermissionError):
                self.try_to_approve(number, by)
        else:
            self.rooms.proposals.close(number, by)

    def try_to_approve(self, number: str, by: Principal) -> None:
        row = self.rooms.proposals.show(number).row
        if row.identity != by.identity:
            self.rooms.proposals.approve(number, by, row.digest)

    def merge(self) -> None:
        number, by = self.some_proposal(), self.by().principal
        assert by
        view = self.rooms.proposals.show(number)
        merged = self.rooms.proposals.merge(number, by, view.row.digest)
        assert not view.readiness.list_lacks(view.row), "merged without the people it needs"
        assert merged.row.revision == self.rooms.gate.snapshot().revision

    def revert(self) -> None:
        number = self.pick(sorted(self.answers))
        made, proposal, edits = self.rooms.proposals.revert(number, self.by())
        assert made
        assert not proposal
        now = {one["metadata"]["name"]: one for one in self.rooms.matrix.export()}
        then = {one["metadata"]["name"]: one for one in self.exports[number - 1]}
        for edit in edits:
            name = edit.document.metadata.name
            assert now.get(name) == then.get(name), f"revision {made} restores {name}"

    def check(self) -> None:
        """Ask every question again at every revision, and verify the audit log."""
        for revision, known in self.answers.items():
            again = [plain(self.rooms.gate.what_would, one, at=revision) for one in QUESTIONS]
            assert again == known, f"revision {revision} answers otherwise now"
            assert self.rooms.matrix.export(revision=revision) == self.exports[revision]
        report = self.rooms.chain.verify()
        assert report.ok, report.problems


def plain(ask: Callable[..., Any], question: dict[str, Any], **at: int) -> tuple[Any, ...] | None:
    """The answer without its time; None: the target does not exist."""
    try:
        verdict = ask(question, **at)
    except NotFound:
        return None
    return verdict.id, verdict.verdict, verdict.allowed, verdict.matrix_revision


@pytest.fixture(scope="module")
def make_walk(facts: Facts) -> Iterator[Callable[[Any], Walk]]:
    """Makes walks, each on a database of its own."""
    folder = Path(tempfile.mkdtemp())
    gates: list[Rooms] = []

    def make(pick: Any) -> Walk:
        url = new_database(folder / f"{len(gates)}.db")
        gates.append(Rooms(make_gate(Database.open(url), facts)))
        return Walk(gates[-1], pick)

    yield make
    for rooms in gates:
        rooms.close()
    shutil.rmtree(folder)


def test_what_was_decided_at_a_revision_is_decided_there_again(
    make_walk: Callable[[Any], Walk],
) -> None:
    walk = make_walk(random.Random(21).choice)
    while len(walk.answers) < CHANGES:
        walk.step()
    walk.check()
    kinds = {row.action for row in walk.rooms.matrix.list_revisions(limit=1000).items}
    assert kinds >= {"create", "change", "delete", "merge", "revert"}


def test_replicas_with_another_past_name_the_same_entry_among_equals(
    make_walk: Callable[[Any], Walk], facts: Facts
) -> None:
    rooms = make_walk(random.Random(1).choice).rooms
    for name in ("e3", "e1", "e2"):
        spec = {"targets": ["open"], "components": {"cuda": "12.8.*"}}
        rooms.matrix.create("Entry", document("Entry", ENTRY, name, **spec), BY)
        rooms.gate.snapshot()
    fresh = Rooms(make_gate(Database.open(rooms.gate.url), facts))
    question = {"target": "open", "stack": {"cuda": "12.4", "arch": ["sm_80"]}}
    answers = [one.preview(question) for one in (rooms.gate, fresh.gate)]
    fresh.close()
    assert answers[0].id == answers[1].id
    assert "the nearest is e1" in answers[0].findings[0].message


def test_no_order_of_changes_proposals_and_reverts_rewrites_the_past(
    make_walk: Callable[[Any], Walk],
) -> None:
    class Machine(RuleBasedStateMachine):
        @initialize(source=st.randoms(use_true_random=False))
        def begin(self, source: random.Random) -> None:
            self.walk = make_walk(source.choice)

        @rule(source=st.randoms(use_true_random=False))
        def step(self, source: random.Random) -> None:
            self.walk.pick = source.choice
            self.walk.step()

        @invariant()
        def the_latest_answers_are_kept(self) -> None:
            if hasattr(self, "walk"):
                assert self.walk.rooms.gate.snapshot().revision in self.walk.answers

        def teardown(self) -> None:
            if hasattr(self, "walk"):
                self.walk.check()

    from hypothesis.stateful import run_state_machine_as_test

    few = settings(max_examples=4, stateful_step_count=12, deadline=None)
    run_state_machine_as_test(Machine, settings=few)
