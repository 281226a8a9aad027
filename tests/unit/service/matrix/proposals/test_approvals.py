"""Two people: what lets the gate allow more on a target is made when another person agrees."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from flask.testing import FlaskClient

from compatgate.kit import clock
from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms
from compatgate.service.matrix.documents.schemas import ENTRY, TARGET, WAIVER

API = "/api/v1"
NAME = "two-people"
Headers = dict[str, str]


class World(NamedTuple):
    rooms: Rooms
    client: FlaskClient
    ann: Headers
    bob: Headers

    def revision(self) -> int:
        return self.rooms.matrix.list_revisions(limit=1).items[0].number

    def mode(self) -> str:
        spec = self.rooms.matrix.get("Target", NAME).document["spec"]
        return str(spec["policy"]["mode"])

    def put(self, document: dict[str, Any], who: Headers, kind: str = "targets") -> Any:
        name = document["metadata"]["name"]
        body = {**document, "reason": "as planned"}
        return self.client.put(f"{API}/{kind}/{name}", json=body, headers=who)

    def decide(self, number: str, what: str, who: Headers) -> Any:
        read = {"digest": self.rooms.proposals.show(number).row.digest}
        body = read if what == "approve" else {}
        return self.client.post(f"{API}/proposals/{number}/{what}", json=body, headers=who)


@pytest.fixture
def world(rooms: Rooms, make_client: Callable[..., FlaskClient]) -> World:
    rooms.matrix.create("Target", target(), Authorship("tester", "for the test"))
    ann, bob = (
        {"Authorization": f"Bearer {rooms.tokens.create(name, ['read', 'bless'], by='t').secret}"}
        for name in ("ann", "bob")
    )
    return World(rooms, make_client(anonymous=frozenset()), ann, bob)


def plain(document: dict[str, Any], name: str, **spec: Any) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(json.dumps(document))
    del body["reason"]
    body["metadata"]["name"] = name
    body["spec"] |= spec
    return body


def target(**policy: Any) -> dict[str, Any]:
    return plain(TARGET, NAME, policy={**TARGET["spec"]["policy"], "approvals": 2, **policy})


def entry(**spec: Any) -> dict[str, Any]:
    return plain(ENTRY, "two-entry", **{"targets": [NAME], **spec})


def needed(answer: Any) -> str:
    """Return the id of the approval that a refusal names."""
    problem = answer.get_json(force=True)
    assert (answer.status_code, problem["type"].rpartition("/")[2]) == (409, "approval-needed")
    assert problem["value"] in problem["hint"]
    return str(problem["value"])


def test_another_person_approves_and_the_change_is_made(world: World) -> None:
    before = world.revision()
    number = needed(world.put(target(mode="audit"), world.ann))
    assert needed(world.put(target(mode="audit"), world.ann)) == number, "asked for once"
    assert (world.revision(), world.mode()) == (before, "enforce")
    alone = world.decide(number, "approve", world.ann)
    assert alone.status_code == 403
    assert "another person approves it" in alone.get_json(force=True)["detail"]
    approved = world.decide(number, "approve", world.bob).get_json()
    assert (approved["state"], approved["decided_by"]) == ("merged", "bob")
    assert (approved["revision"], world.mode()) == (before + 1, "audit")
    made = world.rooms.matrix.show_revision(before + 1)
    assert (made.author, made.reason) == ("ann", "as planned")
    (link,) = world.rooms.audit.list_audit(action="matrix.change", limit=1).items
    assert link.detail["proposal"] == number
    assert link.detail["people"] == ["ann", "bob"]
    (asked,) = world.rooms.audit.list_audit(action="proposal.open").items
    assert (asked.actor, asked.subject, asked.detail["digest"]) == (
        "ann",
        number,
        approved["digest"],
    )
    assert world.rooms.chain.verify().ok
    assert world.decide(number, "approve", world.bob).status_code == 409, "once"


def test_another_person_sends_the_same_change(world: World) -> None:
    number = needed(world.put(target(mode="warn"), world.ann))
    needed(world.put(target(mode="audit"), world.bob))
    assert world.mode() == "enforce", "another change is another question"
    assert world.put(target(mode="warn"), world.bob).status_code == 200
    assert world.mode() == "warn"
    assert world.rooms.proposals.show(number).state == "merged"
    assert world.rooms.proposals.show(number).row.revision == world.revision()


def test_an_import_waits_as_a_whole(world: World) -> None:
    documents = [
        {"apiVersion": "compatgate.dev/v1", "kind": "Target", **target(mode="audit")},
        {"apiVersion": "compatgate.dev/v1", "kind": "Target", **plain(TARGET, "free")},
    ]
    path, before = f"{API}/matrix/import?reason=x", world.revision()
    number = needed(world.client.post(path, json=documents, headers=world.ann))
    assert world.revision() == before
    shown = world.client.get(f"{API}/proposals/{number}", headers=world.bob).get_json()
    assert [(one["action"], one["name"]) for one in shown["changes"]] == [
        ("create", "free"),
        ("change", NAME),
    ]
    assert [one["target"] for one in shown["demands"]] == [NAME]
    done = world.client.post(path, json=documents, headers=world.bob).get_json()
    assert (done["revision"], len(done["changes"])) == (before + 1, 2)


@pytest.mark.parametrize(
    ("kind", "document"),
    [
        ("targets", target(canary={"require": True})),
        ("targets", {**target(), "metadata": {"name": NAME, "labels": {"tier": "x"}}}),
        ("entries", entry(status="candidate")),
        ("entries", entry(status="revoked")),
    ],
)
def test_what_is_stricter_needs_one_person(
    world: World, kind: str, document: dict[str, Any]
) -> None:
    if kind == "entries":
        answer = world.client.post(
            f"{API}/{kind}", json={**document, "reason": "x"}, headers=world.ann
        )
        assert answer.status_code == 201
    else:
        assert world.put(document, world.ann, kind).status_code == 200


def test_entries_and_waivers_of_the_target_need_two_people_and_ending_them_one(
    world: World,
) -> None:
    client, ann, bob = world.client, world.ann, world.bob
    made = {"entries": entry(), "waivers": plain(WAIVER, "two-waiver", targets=[NAME])}
    for kind, document in made.items():
        body = {**document, "reason": "x"}
        number = needed(client.post(f"{API}/{kind}", json=body, headers=ann))
        assert world.decide(number, "approve", bob).status_code == 200
    assert world.put(entry(status="revoked"), ann, "entries").status_code == 200
    needed(world.put(entry(status="blessed"), ann, "entries"))
    needed(client.delete(f"{API}/entries/two-entry?reason=x", headers=ann))
    longer = (clock.today() + timedelta(days=80)).isoformat()
    shorter = (clock.today() + timedelta(days=3)).isoformat()
    waiver = made["waivers"]
    waiver["spec"]["expires"] = shorter
    assert world.put(waiver, ann, "waivers").status_code == 200
    waiver["spec"]["expires"] = longer
    needed(world.put(waiver, ann, "waivers"))
    assert client.delete(f"{API}/waivers/two-waiver?reason=x", headers=ann).status_code == 200


def test_a_document_for_all_targets_needs_two_people_where_one_target_asks(world: World) -> None:
    body = {**plain(ENTRY, "everywhere", targets=["*"]), "reason": "x"}
    needed(world.client.post(f"{API}/entries", json=body, headers=world.ann))


def test_fewer_people_and_the_end_of_the_target_need_two(world: World) -> None:
    needed(world.put(target(approvals=1), world.ann))
    answer = world.client.delete(f"{API}/targets/{NAME}?reason=x", headers=world.ann)
    number = needed(answer)
    assert world.decide(number, "approve", world.bob).status_code == 200
    assert world.client.get(f"{API}/targets/{NAME}", headers=world.bob).status_code == 404


def test_an_approval_is_of_the_documents_that_its_author_saw(world: World) -> None:
    number = needed(world.put(target(mode="audit"), world.ann))
    stricter = target(canary={"require": True})
    assert world.put(stricter, world.bob).status_code == 200
    answer = world.decide(number, "approve", world.bob)
    assert answer.status_code == 409
    assert "has changed since" in answer.get_json(force=True)["detail"]
    assert world.mode() == "enforce"


def test_an_approval_ends(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    number = needed(world.put(target(mode="audit"), world.ann))
    at = clock.now() + timedelta(days=8)
    monkeypatch.setattr(clock, "now", lambda: at)
    answer = world.decide(number, "approve", world.bob)
    assert answer.status_code == 409
    assert "has ended" in answer.get_json(force=True)["detail"]
    assert needed(world.put(target(mode="audit"), world.bob)) != number
    assert world.mode() == "enforce"


def test_a_change_is_refused_or_withdrawn(world: World) -> None:
    for who in (world.bob, world.ann):
        number = needed(world.put(target(mode="audit"), world.ann))
        assert world.decide(number, "close", who).get_json()["state"] == "closed"
        assert world.decide(number, "approve", world.bob).status_code == 409
    assert len(world.rooms.audit.list_audit(action="proposal.close").items) == 2
    assert world.mode() == "enforce"
    listed = world.client.get(f"{API}/proposals?state=open", headers=world.bob).get_json()
    assert listed["items"] == []


def test_who_may_not_make_a_change_does_not_approve_it(world: World) -> None:
    number = needed(world.put(target(mode="audit"), world.ann))
    made = world.rooms.tokens.create("lab", ["bless"], by="t", targets=["lab-*"])
    answer = world.decide(number, "approve", {"Authorization": f"Bearer {made.secret}"})
    assert answer.status_code == 403
    other = world.rooms.tokens.create("op", ["operate"], by="t")
    answer = world.decide(number, "approve", {"Authorization": f"Bearer {other.secret}"})
    assert answer.status_code == 403
    assert world.mode() == "enforce"
