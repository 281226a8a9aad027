"""Proposals: edits that people review and approve, and that become one revision."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec
import pytest
from canary_runs import STACK, evidence, host
from flask.testing import FlaskClient

from compatgate.kit import clock
from compatgate.kit.principal import AccessRefused, Authorship, Principal
from compatgate.service.app import Rooms
from compatgate.service.matrix.documents.schemas import ENTRY, TARGET, WAIVER
from compatgate.service.matrix.proposals.agreement import ApprovalNeeded
from compatgate.service.matrix.proposals.schemas import ProposalRequest
from compatgate.service.runs.queue.schemas import RunRequest

API = "/api/v1"
BY = Authorship("tester", "for the test")
PROD, PAIR, STRICT = "prod-a100", "pair", "strict"
Headers = dict[str, str]


class World(NamedTuple):
    rooms: Rooms
    client: FlaskClient

    def who(self, name: str, *scopes: str, **options: Any) -> Headers:
        made = self.rooms.tokens.create(name, scopes or ("read", "bless"), by="t", **options)
        return {"Authorization": f"Bearer {made.secret}"}

    def propose(self, who: Headers, **edits: Any) -> Any:
        body = {"reason": "as planned", **edits}
        return self.client.post(f"{API}/proposals", json=body, headers=who)

    def open(self, who: Headers, **edits: Any) -> Any:
        answer = self.propose(who, **edits)
        assert answer.status_code == 201, answer.text
        return answer.get_json()

    def act(self, number: str, what: str, who: Headers, **body: Any) -> Any:
        if what in ("approve", "merge"):
            body.setdefault("digest", self.rooms.proposals.show(number).row.digest)
        return self.client.post(f"{API}/proposals/{number}/{what}", json=body, headers=who)

    def done(self, number: str, what: str, who: Headers, **body: Any) -> Any:
        answer = self.act(number, what, who, **body)
        assert answer.status_code in (200, 201), answer.text
        return answer.get_json()

    def driver(self, target: str = PROD) -> str:
        pools = self.rooms.matrix.get("Target", target).document["spec"]["pools"]
        return str(pools[0]["driver"])

    def links(self, action: str) -> list[Any]:
        return list(self.rooms.audit.list_audit(action=action).items)


def document(kind: str, example: dict[str, Any], name: str, **spec: Any) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(json.dumps(example))
    del body["reason"]
    body["metadata"]["name"] = name
    body["spec"] |= spec
    return {"apiVersion": "compatgate.dev/v1", "kind": kind, **body}


def target(name: str, **policy: Any) -> dict[str, Any]:
    policy = {**TARGET["spec"]["policy"], **policy}
    return document("Target", TARGET, name, policy=policy)


def newer(name: str, driver: str = "580.95.05") -> list[dict[str, Any]]:
    return [{"target": name, "set": {"driver": driver}}]


@pytest.fixture
def world(rooms: Rooms, make_client: Callable[..., FlaskClient]) -> World:
    rooms.matrix.create("Target", target(PAIR, approvals=2), BY)
    rooms.matrix.create("Target", target(STRICT, changes="proposals"), BY)
    return World(rooms, make_client(anonymous=frozenset()))


def problem(answer: Any) -> tuple[int, str, str]:
    body = answer.get_json(force=True)
    return answer.status_code, body["type"].rpartition("/")[2], body["detail"]


@pytest.mark.parametrize("what", ["approve", "merge"])
@pytest.mark.parametrize("made_of", ["proposal", "refused change"])
def test_who_approves_or_merges_names_the_edits_that_he_read(
    world: World, what: str, made_of: str
) -> None:
    """An absent or stale digest is refused with the present difference, and does nothing."""
    ann, bob = world.who("ann", "read", "propose", "bless"), world.who("bob", "read", "bless")
    if made_of == "refused change":
        direct = target(PAIR, mode="audit", approvals=2)
        refused = world.client.put(
            f"{API}/targets/{PAIR}", json={**direct, "reason": "x"}, headers=ann
        )
        number = refused.get_json()["value"]
    else:
        number = world.open(ann, pools=newer(PAIR))["id"]
    made = world.rooms.proposals.show(number)
    if (what, made_of) == ("merge", "proposal"):
        world.done(number, "approve", bob)
    path = f"{API}/proposals/{number}/{what}"
    for body in ({}, {"digest": "0" * 64}, {"digest": made.row.digest[::-1]}):
        answer = world.client.post(path, json=body, headers=bob)
        assert problem(answer)[:2] == (409, "digest-needed"), body
        detail = answer.get_json()["detail"]
        assert ("+    driver: 580.95.05" in detail) or ("+    mode: audit" in detail)
        assert f"--digest {made.row.digest}" in answer.get_json()["hint"]
    if made_of == "proposal":
        changed = world.client.put(
            f"{API}/proposals/{number}",
            json={"pools": newer(PAIR, "590.1"), "reason": "x"},
            headers=ann,
        )
        assert changed.status_code == 200
        stale = world.client.post(path, json={"digest": made.row.digest}, headers=bob)
        assert problem(stale)[:2] == (409, "digest-needed")
        assert "590.1" in stale.get_json()["detail"]
    assert world.rooms.proposals.show(number).state == "open"


def test_a_proposal_changes_nothing_until_it_is_merged_as_one_revision(world: World) -> None:
    ann, bob = world.who("ann", "read", "propose"), world.who("bob")
    last = world.rooms.gate.snapshot().revision
    entry = document("Entry", ENTRY, "torch26")
    made = world.open(ann, documents=[entry], pools=newer(PROD))
    assert (made["state"], made["base"], made["blockers"]) == ("open", last, [])
    assert made["summary"] == [
        "target prod-a100: change driver of pool a100-80 from 535.183.01 to 580.95.05",
        "add entry torch26, blessed, for prod-a100, cuda 12.4.*, driver >=535.104.05,<536,"
        " torch ~=2.4.0",
    ]
    assert "-    driver: 535.183.01\n+    driver: 580.95.05" in made["diff"]
    assert "+++ Entry/torch26" in made["diff"]
    assert (world.rooms.gate.snapshot().revision, world.driver()) == (last, "535.183.01")
    refused = world.act(made["id"], "merge", ann)
    assert refused.status_code == 403, "who may not make the change does not merge it"
    merged = world.done(made["id"], "merge", bob)
    assert (merged["state"], merged["revision"], merged["decided_by"]) == (
        "merged",
        last + 1,
        "bob",
    )
    assert world.driver() == "580.95.05"
    revision = world.client.get(f"{API}/revisions/{last + 1}", headers=bob).get_json()
    assert (revision["author"], revision["proposal"], revision["action"], revision["count"]) == (
        "ann",
        made["id"],
        "merge",
        2,
    )
    (link,) = world.links("matrix.merge")
    assert link.detail | {"sha256": ""} == {
        "proposal": made["id"],
        "people": ["ann"],
        "merged_by": "bob",
        "edits": made["digest"],
        "revision": last + 1,
        "reason": "as planned",
        "sha256": "",
    }
    assert world.rooms.chain.verify().ok
    assert problem(world.act(made["id"], "merge", bob))[0] == 409


def test_a_direct_change_records_that_it_went_without_a_proposal(world: World) -> None:
    bob = world.who("bob")
    world.client.delete(f"{API}/waivers/legacy-ocr?reason=x", headers=bob)
    (link,) = world.links("matrix.delete")
    assert link.detail["proposal"] is None
    last = world.rooms.gate.snapshot().revision
    shown = world.client.get(f"{API}/revisions/{last}", headers=bob).get_json()
    assert shown["proposal"] is None


def test_two_people_agree_and_the_author_is_one_of_them(world: World) -> None:
    ann, bob, eve = world.who("ann"), world.who("bob", "read", "approve"), world.who("eve", "read")
    made = world.open(ann, pools=newer(PAIR))
    number = made["id"]
    assert made["demands"] == [
        {"target": PAIR, "people": 2, "approvers": None, "approvals": 0, "proposed": False}
    ]
    assert made["blockers"] == ["pair requires 1 more approval"]
    assert problem(world.act(number, "merge", ann))[:2] == (409, "approval-needed")
    assert "another person" in problem(world.act(number, "approve", ann))[2]
    assert world.act(number, "approve", eve).status_code == 403
    approved = world.done(number, "approve", bob, digest=made["digest"])
    assert (approved["state"], approved["approvals"][0]["by"]) == ("approved", "bob")
    assert world.act(number, "merge", bob).status_code == 403, "to approve is not to merge"
    assert world.done(number, "merge", ann)["state"] == "merged"
    assert world.links("matrix.merge")[0].detail["people"] == ["ann", "bob"]


KIM = "Kim@Example.org"
HANDS: tuple[tuple[dict[str, str], dict[str, str]], ...] = (
    ({"name": "kim-a", "owner": KIM}, {"name": "kim-b", "owner": KIM}),
    ({"name": "kim-a", "owner": KIM}, {"name": "kim-b", "owner": KIM.lower()}),
    ({"name": "kim"}, {"name": "kim-b", "owner": "kim"}),
    ({"name": "kim-a", "owner": "kim"}, {"name": "kim"}),
    ({"name": "kim-a", "owner": KIM}, {"name": KIM, "subject": "https://idp.example k1"}),
    ({"name": KIM, "subject": "https://idp.example k1"}, {"name": "kim-a", "owner": KIM}),
)


def hand(world: World, name: str, owner: str = "", subject: str = "") -> Principal:
    """Return a person's token, or the person as the sign-in names it."""
    if subject:
        return Principal(name, frozenset({"read", "bless"}), kind="person", subject=subject)
    made = world.rooms.tokens.create(name, ["read", "bless"], by="t", person=owner or None)
    return world.rooms.tokens.verify(made.secret)


def draft(world: World, by: Principal, name: str = PAIR, **edits: Any) -> tuple[str, str]:
    """Open a proposal; return its id and the digest of its edits."""
    request = msgspec.convert({"reason": "x", **(edits or {"pools": newer(name)})}, ProposalRequest)
    row = world.rooms.proposals.propose(request, Authorship(by.name, "x", by)).row
    return row.id, row.digest


@pytest.mark.parametrize(("first", "second"), HANDS)
def test_a_person_is_no_second_one_by_another_token_or_the_sign_in(
    world: World, first: dict[str, str], second: dict[str, str]
) -> None:
    one, other = hand(world, **first), hand(world, **second)
    number, digest = draft(world, one)
    with pytest.raises(AccessRefused, match="another person approves it"):
        world.rooms.proposals.approve(number, other, digest)
    with pytest.raises(ApprovalNeeded):
        world.rooms.proposals.merge(number, other, digest)
    same = target(PAIR, approvals=2, mode="audit")
    for by in (one, other):  # the same change, sent directly by both hands
        with pytest.raises(ApprovalNeeded):
            world.rooms.matrix.change("Target", PAIR, same, Authorship(by.name, "x", by))
    assert world.driver(PAIR) == "535.183.01"
    lee = hand(world, "lee")
    world.rooms.proposals.approve(number, lee, digest)
    assert world.rooms.proposals.merge(number, other, digest).row.state == "merged"


@pytest.mark.parametrize(("first", "second"), HANDS)
def test_the_hands_of_a_person_approve_once_and_take_it_back_once(
    world: World, first: dict[str, str], second: dict[str, str]
) -> None:
    world.rooms.matrix.create("Target", target("three", approvals=3), BY)
    one, other, lee = hand(world, **first), hand(world, **second), hand(world, "lee")
    number, digest = draft(world, lee, "three")
    for by in (one, other, one):
        view = world.rooms.proposals.approve(number, by, digest)
        assert view.state == "open"
    assert len(view.row.approvals) == 1
    with pytest.raises(ApprovalNeeded):
        world.rooms.proposals.merge(number, lee, digest)
    assert not world.rooms.proposals.retract(number, other).row.approvals


@pytest.mark.parametrize(("first", "second"), HANDS)
def test_nobody_makes_another_of_his_hands_the_only_approver(
    world: World, first: dict[str, str], second: dict[str, str]
) -> None:
    one, other = hand(world, **first), hand(world, **second)
    seized = target(PROD, approvals=2, approvers=[other.name])
    with pytest.raises(ApprovalNeeded):
        world.rooms.matrix.change("Target", PROD, seized, Authorship(one.name, "x", one))


def test_approvals_fall_when_the_edits_change(world: World) -> None:
    ann, bob = world.who("ann"), world.who("bob")
    made = world.open(ann, pools=newer(PAIR))
    number = made["id"]
    world.done(number, "approve", bob)
    body = {"pools": newer(PAIR, "575.57.08"), "reason": "another driver"}
    path = f"{API}/proposals/{number}"
    assert world.client.put(path, json=body, headers=bob).status_code == 403, "not the author"
    changed = world.client.put(path, json=body, headers=ann).get_json()
    assert (changed["state"], changed["approvals"]) == ("open", [])
    assert [event["current"] for event in changed["events"]] == [False, False, True]
    late = world.act(number, "approve", bob, digest=made["digest"])
    assert "has edits that you have not seen" in problem(late)[2]
    assert world.act(number, "merge", ann).status_code == 409
    world.done(number, "approve", bob, digest=changed["digest"])
    world.done(number, "merge", ann)
    assert world.driver(PAIR) == "575.57.08"


def test_a_proposal_conflicts_once_its_document_changes(world: World) -> None:
    ann, bob = world.who("ann"), world.who("bob")
    number = world.open(ann, pools=newer(PAIR))["id"]
    world.done(number, "approve", bob)
    stricter = target(PAIR, approvals=2, canary={"require": True})
    body = {**stricter, "reason": "x"}
    assert world.client.put(f"{API}/targets/{PAIR}", json=body, headers=bob).status_code == 200
    shown = world.client.get(f"{API}/proposals/{number}", headers=ann).get_json()
    last = world.rooms.gate.snapshot().revision
    assert shown["state"] == "conflicted"
    assert shown["conflicts"] == [{"kind": "Target", "name": PAIR, "revision": last}]
    for what in ("merge", "approve"):
        assert "has changed since" in problem(world.act(number, what, bob))[2]
    again = {"pools": newer(PAIR), "reason": "on top of it"}
    world.client.put(f"{API}/proposals/{number}", json=again, headers=ann)
    assert problem(world.act(number, "merge", ann))[1] == "approval-needed", "approved before"
    assert world.driver(PAIR) == "535.183.01"


def test_a_base_protects_what_somebody_else_changed_meanwhile(world: World) -> None:
    bob = world.who("bob")
    base = world.rooms.gate.snapshot().revision
    number = world.open(bob, pools=newer(PROD))["id"]
    world.done(number, "merge", bob)
    late = world.propose(bob, pools=newer(PROD, "575.57.08"), base=base)
    assert problem(late)[0] == 409
    assert f"changed the Target 'prod-a100' since revision {base}" in problem(late)[2]
    never = world.propose(bob, pools=newer(PROD, "575.57.08"), base=99)
    assert "is not a known revision" in problem(never)[2]


def test_an_approval_is_taken_back(world: World) -> None:
    ann, bob = world.who("ann"), world.who("bob")
    number = world.open(ann, pools=newer(PAIR))["id"]
    assert world.act(number, "retract", bob).status_code == 409
    world.done(number, "approve", bob)
    assert world.done(number, "retract", bob)["approvals"] == []
    assert world.act(number, "merge", ann).status_code == 409


def test_policies_say_whose_approvals_count_and_how_many(world: World) -> None:
    three = target("three", approvals=3, approvers=["sre-*"])
    world.rooms.matrix.create("Target", three, BY)
    ann = world.who("ann")
    number = world.open(ann, pools=newer("three"))["id"]
    for name in ("bob", "sre-kim"):
        found = world.done(number, "approve", world.who(name, "approve"))
        assert found["state"] == "open"
    assert found["blockers"] == ["three requires 1 more approval of sre-*"]
    assert world.done(number, "approve", world.who("sre-lee", "approve"))["state"] == "approved"
    world.done(number, "merge", ann)
    lonely = target("lonely", approvers=["sre-*"])
    answer = world.propose(ann, documents=[lonely])
    (mistake,) = answer.get_json(force=True)["problems"]
    assert "the policy requires one person, the author" in mistake["problem"]


def test_the_last_approval_merges_where_the_author_asked_for_it(world: World) -> None:
    ann, bob = world.who("ann"), world.who("bob")
    first = world.open(ann, pools=newer(PAIR), merge="approved")["id"]
    assert world.done(first, "approve", bob)["state"] == "merged"
    back = world.open(ann, pools=newer(PAIR, "535.183.01"), merge="approved")["id"]
    kim = world.who("kim", "approve")
    assert world.done(back, "approve", kim)["state"] == "approved", "kim may not make the change"


def test_where_the_policy_asks_for_proposals_a_direct_change_becomes_one(world: World) -> None:
    bob = world.who("bob")
    body = {**target(STRICT, changes="proposals", mode="warn"), "reason": "x"}
    refused = world.client.put(f"{API}/targets/{STRICT}", json=body, headers=bob)
    assert problem(refused)[:2] == (409, "proposal-needed")
    number = refused.get_json(force=True)["value"]
    merged = world.done(number, "merge", bob)
    assert (merged["state"], merged["action"]) == ("merged", "change")
    left = {**target(STRICT), "reason": "no more proposals"}
    answer = world.client.put(f"{API}/targets/{STRICT}", json=left, headers=bob)
    assert problem(answer)[1] == "proposal-needed", "nor is the policy ended directly"


def test_permissions_are_withdrawn_at_once_where_the_policy_asks_for_proposals(
    world: World,
) -> None:
    bob = world.who("bob")
    entry = document("Entry", ENTRY, "here", targets=[STRICT])
    soon = (clock.today() + timedelta(days=9)).isoformat()
    waiver = document("Waiver", WAIVER, "excused", targets=[STRICT], expires=soon)
    number = world.open(bob, documents=[entry, waiver])["id"]
    world.done(number, "merge", bob)
    entry["spec"]["status"] = "revoked"
    body = {**entry, "reason": "it hangs"}
    assert world.client.put(f"{API}/entries/here", json=body, headers=bob).status_code == 200
    assert world.client.delete(f"{API}/waivers/excused?reason=x", headers=bob).status_code == 200
    entry["spec"]["status"] = "blessed"
    again = world.client.put(f"{API}/entries/here", json={**entry, "reason": "x"}, headers=bob)
    assert problem(again)[1] == "proposal-needed"


def test_a_blessing_waits_for_the_evidence_that_the_policy_asks_for(world: World) -> None:
    ann, bob = world.who("ann"), world.who("bob")
    careful = target("careful", canary={"require": True, "suites": ["smoke"]})
    world.rooms.matrix.create("Target", careful, BY)
    draft = document("Entry", ENTRY, "draft", targets=["careful"], status="candidate")
    world.rooms.matrix.create("Entry", draft, BY)
    bless = [{"entry": "draft", "status": "blessed"}]
    made = world.open(ann, entries=bless)
    (need,) = made["evidence"]["needs"]
    assert (need["suite"], need["target"], need["required"]) == ("smoke", "careful", True)
    assert problem(world.act(made["id"], "merge", bob))[:2] == (409, "evidence-needed")
    merged = world.done(made["id"], "merge", bob, override="the canary host is away")
    assert merged["override"] == "the canary host is away"
    assert merged["events"][-1]["text"] == "the canary host is away"
    assert world.links("matrix.merge")[0].detail["override"] == "the canary host is away"
    assert world.rooms.matrix.get("Entry", "draft").document["spec"]["status"] == "blessed"


def test_evidence_that_is_there_lets_a_blessing_pass(world: World) -> None:
    bob = world.who("bob")
    careful = target("careful", canary={"require": True, "suites": ["smoke"]})
    world.rooms.matrix.create("Target", careful, BY)
    world.rooms.runs.submit(RunRequest("smoke", target="careful", stack=STACK), by="t")
    lease = world.rooms.runs.queue.lease("w1", [host()])
    assert lease
    world.rooms.runs.queue.finish(lease, "passed", "", evidence(lease))
    entry = document("Entry", ENTRY, "new", targets=["careful"], components={"cuda": "12.4.*"})
    made = world.open(bob, documents=[entry])
    assert (made["evidence"]["runs"], made["blockers"]) == ([lease.run.id], [])
    merged = world.done(made["id"], "merge", bob, override="not needed")
    assert merged["override"] is None, "an override that overrides nothing is not kept"


def test_a_backtest_is_kept_with_the_edits_that_it_tested(world: World) -> None:
    ann = world.who("ann")
    stack = {"cuda": "12.4", "cudnn": "9.1.0", "arch": ["sm_80"]}
    world.rooms.gate.decide({"target": PROD, "stack": stack}, asked_by="ci", source="rest")
    number = world.open(ann, pools=newer(PROD, "470.82.01"))["id"]
    tested = world.done(number, "backtest", ann, days=7)
    assert tested["backtest"]["counts"]
    shown = world.client.get(f"{API}/proposals/{number}", headers=ann).get_json()
    assert shown["backtest"] == tested["backtest"]
    assert world.act(number, "backtest", ann, days=0).status_code == 400
    body = {"pools": newer(PROD), "reason": "another driver"}
    changed = world.client.put(f"{API}/proposals/{number}", json=body, headers=ann).get_json()
    assert changed["backtest"] is None, "it speaks of other edits"
    world.done(number, "close", ann)
    assert world.act(number, "backtest", ann).status_code == 409


def test_an_author_withdraws_and_an_approver_closes(world: World) -> None:
    ann, bob = world.who("ann", "propose", "read"), world.who("bob", "approve")
    kim = world.who("kim", "propose")
    for who in (ann, bob):
        number = world.open(ann, pools=newer(PROD))["id"]
        assert world.act(number, "close", kim).status_code == 403
        closed = world.done(number, "close", who, comment="later")
        assert (closed["state"], closed["blockers"]) == ("closed", ["it is closed"])
        for what in ("approve", "merge", "close"):
            status = world.act(number, what, world.who(f"x{number}{what}", "bless")).status_code
            assert status == 409
        assert closed["events"][-1]["text"] == "later"
    assert len(world.links("proposal.close")) == 2


@pytest.mark.parametrize(
    ("edits", "field", "says"),
    [
        ({}, "documents", "changes nothing"),
        ({"documents": [{"kind": "Entry"}]}, None, "'file': 'documents', 'line': 1"),
        ({"files": [{"file": "a.yaml", "text": "kind: Entry\n"}]}, None, "'file': 'a.yaml'"),
        ({"delete": [{"kind": "Entry", "name": "none"}]}, "name", "does not exist"),
        ({"delete": [{"kind": "Target", "name": PROD}]}, "name", "is still used by Entry torch24"),
        ({"pools": newer("none")}, "name", "does not exist"),
        ({"pools": [{"target": PROD, "set": {"drivr": "1"}}]}, "set", "not a pool value"),
        ({"pools": newer(PROD, "new")}, None, "driver"),
        (
            {"pools": [{"target": PROD, "pool": "x", "set": {"driver": "1"}}]},
            "pool",
            "no such pool",
        ),
        ({"entries": [{"entry": "torch24-cu124", "status": "blessed"}]}, "status", "already"),
        ({"pools": newer(PROD), "documents": [target(PROD)]}, "documents", "edited twice"),
        ({"surprise": 1}, "surprise", "unknown key"),
        ({"merge": "soon"}, "merge", "has the wrong form"),
        ({"reason": ""}, "reason", "a change needs a reason"),
    ],
)
def test_what_cannot_be_proposed_is_refused_with_its_field(
    world: World, edits: dict[str, Any], field: str | None, says: str
) -> None:
    answer = world.propose(world.who("ann"), **edits)
    body = answer.get_json(force=True)
    assert answer.status_code in (400, 404, 409), body
    told = f"{body['detail']} {body.get('problems')}"
    assert says in told
    assert field is None or body["field"] == field
    assert world.rooms.proposals.list().items == ()


def test_a_target_is_deleted_together_with_what_names_it(world: World) -> None:
    bob = world.who("bob")
    gone = [("Target", PROD), ("Entry", "torch24-cu124"), ("Waiver", "legacy-ocr")]
    made = world.open(bob, delete=[{"kind": kind, "name": name} for kind, name in gone])
    revision = world.done(made["id"], "merge", bob)["revision"]
    assert world.client.get(f"{API}/targets/{PROD}", headers=bob).status_code == 404
    path = f"{API}/revisions/{revision}/revert"
    back = world.client.post(path, json={"reason": "too early"}, headers=bob).get_json()
    assert (back["revision"], len(back["changes"])) == (revision + 1, 3)
    assert world.driver() == "535.183.01"


def test_proposals_are_filtered_by_their_state_now(world: World) -> None:
    ann, bob = world.who("ann"), world.who("bob")
    ids = {
        "merged": world.open(ann, pools=newer(PROD))["id"],
        "approved": world.open(ann, pools=newer(PAIR))["id"],
        "open": world.open(ann, pools=newer(PAIR, "575.57.08"))["id"],
        "closed": world.open(ann, pools=newer(STRICT))["id"],
        "conflicted": world.open(bob, pools=newer(PROD, "575.57.08"))["id"],
    }
    world.done(ids["approved"], "approve", bob)
    world.done(ids["closed"], "close", ann)
    world.done(ids["merged"], "merge", bob)
    for state, number in ids.items():
        found = world.client.get(f"{API}/proposals?state={state}", headers=ann).get_json()
        assert [one["id"] for one in found["items"]] == [number], state
    found = world.client.get(f"{API}/proposals?target={PAIR}&author=ann&limit=1", headers=ann)
    assert len(found.get_json()["items"]) == 1
    assert found.get_json()["next"]


def test_a_limited_token_sees_and_proposes_only_for_its_targets(world: World) -> None:
    ann = world.who("ann")
    mine = world.open(ann, pools=newer(PROD))["id"]
    world.open(ann, pools=newer(PAIR))
    team = world.who("team", "read", "propose", targets=["prod-*"])
    found = world.client.get(f"{API}/proposals", headers=team).get_json()
    assert [one["id"] for one in found["items"]] == [mine]
    assert world.propose(team, pools=newer(PAIR)).status_code == 403


def test_a_revision_is_reverted_unless_later_ones_changed_its_documents(world: World) -> None:
    bob = world.who("bob")
    numbers = []
    for driver in ("575.57.08", "580.95.05"):
        number = world.open(bob, pools=newer(PROD, driver))["id"]
        numbers.append(world.done(number, "merge", bob)["revision"])

    def revert(number: int, who: Headers = bob, **body: Any) -> Any:
        path = f"{API}/revisions/{number}/revert"
        return world.client.post(path, json={"reason": "jobs fail", **body}, headers=who)

    first, second = numbers
    late = problem(revert(first))
    assert late[0] == 409
    assert f"Target prod-a100 by revision {second}" in late[2]
    assert revert(99).status_code == 404
    assert revert(second, world.who("ann", "propose")).status_code == 403
    asked = revert(second, world.who("kim", "propose"), propose=True).get_json()
    assert (asked["revision"], world.driver()) == (None, "580.95.05")
    made = world.done(asked["proposal"], "merge", bob)
    assert (made["action"], world.driver()) == ("revert", "575.57.08")
    done = revert(made["revision"]).get_json()
    assert (done["revision"], world.driver()) == (made["revision"] + 1, "580.95.05")
    (link,) = [one for one in world.links("matrix.revert") if "reverts" in one.detail]
    assert link.detail["reverts"] == made["revision"]
    assert world.rooms.chain.verify().ok


def test_a_revert_asks_for_the_people_whom_a_change_asks_for(world: World) -> None:
    ann, bob = world.who("ann"), world.who("bob")
    number = world.open(ann, pools=newer(PAIR), merge="approved")["id"]
    revision = world.done(number, "approve", bob)["revision"]
    path, body = f"{API}/revisions/{revision}/revert", {"reason": "jobs fail"}
    refused = world.client.post(path, json=body, headers=ann)
    assert problem(refused)[1] == "approval-needed"
    assert world.done(refused.get_json(force=True)["value"], "approve", bob)["state"] == "merged"
    assert world.driver(PAIR) == "535.183.01"


def test_a_revision_that_names_another_proposal_breaks_the_chain(world: World) -> None:
    from sqlalchemy import text

    bob = world.who("bob")
    number = world.open(bob, pools=newer(PROD))["id"]
    revision = world.done(number, "merge", bob)["revision"]
    with world.rooms.gate.database.writing() as session:
        session.execute(
            text("UPDATE revisions SET proposal = NULL WHERE number = :n"), {"n": revision}
        )
    (link,) = world.links("matrix.merge")
    assert list(world.rooms.chain.verify().problems) == [
        f"revision {revision}: names another proposal than link {link.seq}"
    ]
