"""Upgrades over REST: proposed, approved, started wave by wave, stopped, rolled back, done."""

from __future__ import annotations

from typing import Any

import pytest
from flask.testing import FlaskClient
from upgrade_fleet import API, BY, NAMES, NEW, OLD, Fleet

from compatgate.service.app import Rooms


@pytest.fixture
def fleet(rooms: Rooms, client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    return Fleet(rooms, client, monkeypatch)


def test_an_upgrade_has_the_waves_of_its_plan_and_nothing_starts_by_proposing(fleet: Fleet) -> None:
    answer = fleet.propose()
    assert answer.status_code == 201, answer.text
    made = answer.get_json()
    assert (made["state"], made["decision"]["answer"], made["nodes"]) == ("proposed", "start", 3)
    assert [wave["started_at"] for wave in made["wave_list"]] == [None] * made["waves"]
    assert made["plan"]["summary"].startswith("driver 580.95.05 on prod-a100")
    assert [event["action"] for event in made["events"]] == ["propose"]
    assert fleet.show() == made


def test_waves_follow_each_other_to_the_end_and_mark_what_is_known_good(fleet: Fleet) -> None:
    fleet.propose()
    found = fleet.ask()
    assert (found["answer"], found["wave"], found["nodes"]) == ("start", 1, ["eu/n1"])
    assert found["holder"] == "tool"
    assert fleet.show()["known_good"]["drivers"] == {"a100-80": OLD}
    waves = [["n1"], ["n2"], ["n3"]] if fleet.show()["waves"] == 3 else [["n1"], ["n2", "n3"]]
    for number, names in enumerate(waves, 1):
        assert fleet.answer(number) == "start"
        fleet.pass_time(minutes=10)
        fleet.report(*names, driver=NEW)
        assert fleet.answer(number) == "done"
        following = fleet.ask()
        assert following["answer"] == "wait"
        assert following["reasons"][0].startswith(f"wave {number} soaks until")
        fleet.pass_time(hours=1)
    assert fleet.answer() == "done"
    assert fleet.show()["state"] == "done"
    assert fleet.show()["known_good"]["drivers"] == {"a100-80": NEW}
    actions = [event["action"] for event in fleet.show()["events"]]
    assert actions[0] == "propose"
    assert actions[-1] == "complete"


def test_two_askers_do_not_start_the_same_wave(fleet: Fleet) -> None:
    fleet.propose()
    assert fleet.answer(1, by="argo") == "start"
    assert fleet.answer(1, by="argo") == "start"
    other = fleet.ask(1, by="flagger")
    assert (other["answer"], other["holder"]) == ("wait", "argo")
    assert other["reasons"][0].startswith("argo rolls wave 1, until ")
    fleet.pass_time(minutes=15)
    assert fleet.answer(1, by="flagger") == "start"
    assert fleet.answer(1, by="argo") == "wait"
    assert [one["action"] for one in fleet.show()["events"]] == ["propose", "start", "take over"]


def test_a_look_starts_and_records_nothing(fleet: Fleet) -> None:
    fleet.propose()
    assert fleet.answer(1, dry_run="true") == "start"
    assert fleet.show()["state"] == "proposed"
    path = f"{API}/upgrades/roll/may-start"
    assert fleet.client.head(path, headers=fleet.tool).status_code == 200
    assert fleet.show()["state"] == "proposed"


@pytest.mark.parametrize(("wave", "status"), [("0", 400), ("-1", 400), ("x", 400), ("9", 404)])
def test_a_wave_that_there_is_not_is_told_with_those_that_there_are(
    fleet: Fleet, wave: str, status: int
) -> None:
    fleet.propose()
    path = f"{API}/upgrades/roll/may-start?wave={wave}"
    answer = fleet.client.get(path, headers=fleet.tool)
    assert (answer.status_code, answer.get_json()["field"]) == (status, "wave")
    if status == 404:
        assert answer.get_json()["hint"].startswith("it has waves 1 to ")


def test_approvals_that_the_policy_asks_for_hold_every_wave_and_may_be_taken_back(
    fleet: Fleet,
) -> None:
    fleet.set_policy(approvals=2, approvers=["ana", "ben"])
    fleet.propose()
    ana, eve = (fleet.who(name, "read", "approve") for name in ("ana", "eve"))
    found = fleet.ask(1)
    assert (found["answer"], found["reasons"]) == (
        "wait",
        ["prod-a100 requires 1 more approval of ana, ben"],
    )
    assert fleet.act("approve", fleet.who("tool-2", "upgrade")).status_code == 403
    assert fleet.act("approve", eve).status_code == 200
    assert fleet.answer(1) == "wait"
    assert fleet.act("approve", ana).get_json()["missing_approvals"] == []
    assert fleet.answer(1) == "start"
    assert fleet.act("retract", ana).status_code == 200
    assert fleet.answer(1) == "wait"
    assert fleet.act("retract", ana).status_code == 409


def test_the_author_does_not_approve(fleet: Fleet) -> None:
    both = fleet.who("both", "read", "upgrade", "approve")
    fleet.tool = both
    fleet.propose()
    assert fleet.act("approve", both).status_code == 403
    other = fleet.who("other", "approve", person="both")
    assert fleet.act("approve", other).status_code == 403, "another token of the same person"


def test_two_tokens_of_a_person_approve_an_upgrade_once(fleet: Fleet) -> None:
    fleet.set_policy(approvals=3)
    fleet.propose()
    for name in ("ana", "ana-2"):
        ana = fleet.who(name, "approve", person="ana@example.org")
        assert fleet.act("approve", ana).status_code == 200
    assert fleet.ask(1)["reasons"] == ["prod-a100 requires 1 more approval"]
    assert fleet.act("retract", ana).get_json()["missing_approvals"] == [
        "prod-a100 requires 2 more approvals"
    ]


def test_evidence_that_the_policy_requires_holds_the_first_wave(fleet: Fleet) -> None:
    fleet.set_policy(canary={"require": True, "suites": ["smoke"]})
    fleet.propose()
    found = fleet.ask(1)
    assert (found["answer"], found["phase"]) == ("wait", "proposed")
    assert "suite smoke has not passed for torch24-cu124" in found["reasons"][0]


def test_a_canary_that_fails_after_the_start_rolls_every_wave_back_at_the_next_question(
    fleet: Fleet,
) -> None:
    fleet.set_policy(canary={"require": True, "suites": ["smoke"]})
    fleet.propose()
    fleet.run_canary("failed")
    assert fleet.answer(1) == "wait"
    assert fleet.show()["state"] == "proposed"
    fleet.pass_time(minutes=1)
    fleet.run_canary("passed")
    fleet.roll(1, "n1")
    fleet.run_canary("failed")
    assert {fleet.answer(wave) for wave in (2, 1)} == {"roll back"}
    assert fleet.ask(1)["reasons"][0].startswith("failed canary: run run_")
    assert fleet.show()["events"][-1]["actor"] == ""


def test_nodes_that_lose_the_driver_roll_everything_back_for_good(fleet: Fleet) -> None:
    fleet.propose()
    fleet.roll(1, "n1")
    assert fleet.answer(1) == "done"
    fleet.pass_time(minutes=10)
    fleet.report("n1", driver=OLD)
    found = fleet.ask(2)
    assert found["answer"] == "roll back"
    assert found["reasons"] == [f"drift: eu/n1 of wave 1: driver {OLD} again"]
    assert found["known_good"]["drivers"] == {"a100-80": OLD}
    assert found["retry_after"] is None
    fleet.report("n1", driver=NEW)
    fleet.pass_time(hours=9)
    assert {fleet.answer(wave) for wave in (1, 2)} == {"roll back"}
    assert fleet.act("resume", reason="again").status_code == 409


def test_a_fatal_error_on_changed_nodes_rolls_back_and_errors_as_before_do_not(
    fleet: Fleet,
) -> None:
    fleet.watch(*NAMES, hours=24, xids=(43,))
    fleet.propose(health=True)
    fleet.roll(1, "n1")
    fleet.pass_time(hours=1)
    held = fleet.ask(2)
    assert (held["answer"], held["reasons"]) == (
        "wait",
        ["eu/n1 of wave 1: no health report since the upgrade"],
    )
    fleet.watch("n1", hours=1)
    assert fleet.answer(2, dry_run="true") == "start"
    fleet.pass_time(minutes=5)
    fleet.watch("n1", hours=0.05, xids=(79, 79, 95))
    found = fleet.ask(2)
    assert found["answer"] == "roll back"
    assert found["reasons"][0].startswith("higher rate of fatal Xid errors of upgraded nodes: 2 in")


def test_more_denied_stacks_than_before_roll_back_and_a_stack_asked_often_counts_once(
    fleet: Fleet,
) -> None:
    def ask_gate(cuda: str, image: int) -> None:
        stack = {"cuda": cuda, "torch": "2.4.1+cu124", "cudnn": "9.1.0", "arch": ["sm_80"]}
        question = {"target": "prod-a100", "stack": stack, "image": f"registry.example/a:{image}"}
        fleet.rooms.gate.decide(question, asked_by="ci", source="rest")

    for image in range(30):
        ask_gate("12.4.1", image)
    fleet.pass_time(minutes=1)
    fleet.propose()
    fleet.roll(1, "n1")
    for _ in range(50):
        ask_gate("11.8", 0)
    assert fleet.answer(1) == "done"
    (rate,) = (one for one in fleet.show()["rates"] if one["text"].startswith("denied stacks"))
    assert rate["text"].endswith(": 1 in 1 asked since, 0 in 30 before")
    for image in range(4):
        ask_gate("11.8", image)
    assert fleet.answer(1) == "roll back"


def test_people_stop_resume_and_roll_back_with_a_reason(fleet: Fleet) -> None:
    fleet.propose()
    assert fleet.act("stop").status_code == 400
    assert fleet.act("stop", reason="pager").get_json()["state"] == "stopped"
    assert fleet.ask(1)["reasons"] == ["tool stopped the upgrade: pager"]
    assert fleet.act("stop", reason="pager").status_code == 409
    assert fleet.act("resume", reason="quiet").get_json()["state"] == "proposed"
    assert fleet.answer(1) == "start"
    assert fleet.act("roll-back", reason="slow").get_json()["state"] == "rolled back"
    assert fleet.ask(1)["reasons"] == ["tool rolled the upgrade back: slow"]
    audited = fleet.rooms.audit.list_audit(action="upgrade.roll-back").items
    assert [(one.subject, one.actor) for one in audited] == [("roll", "tool")]


def test_nodes_are_left_out_with_a_reason_but_never_all(fleet: Fleet) -> None:
    fleet.propose()
    assert fleet.act("leave-out", nodes=["n9"], reason="x").status_code == 404
    left = fleet.act("leave-out", nodes=["n1"], reason="in repair").get_json()
    assert left["left_out"] == {"eu/n1": "in repair"}
    assert fleet.ask(1)["reasons"] == ["every node of wave 1 is excluded"]
    assert fleet.answer(2) == "start"
    assert fleet.act("leave-out", nodes=["n2", "eu/n3"], reason="x").status_code == 409


@pytest.mark.parametrize(
    ("given", "status", "field"),
    [
        ({"driver": "new"}, 400, "driver"),
        ({"soak": "soon"}, 400, "soak"),
        ({"soak": "91d"}, 400, "soak"),
        ({"target": "prod-a10"}, 404, "target"),
        ({"accepts": ["torch"]}, 404, "accepts[0]"),
        ({"pool": "b"}, 404, "pool"),
        ({"reason": ""}, 400, "reason"),
    ],
)
def test_what_cannot_be_an_upgrade_is_refused(
    fleet: Fleet, given: dict[str, Any], status: int, field: str
) -> None:
    answer = fleet.propose(**given)
    assert (answer.status_code, answer.get_json()["field"]) == (status, field)


def test_a_node_is_in_one_open_upgrade_and_a_name_is_used_once(fleet: Fleet) -> None:
    fleet.propose()
    assert fleet.propose().get_json()["field"] == "name"
    other = fleet.propose("other")
    assert (other.status_code, other.get_json()["value"]) == (409, "roll")
    fleet.act("roll-back", reason="replanned")
    assert fleet.propose("other").status_code == 201
    listed = fleet.client.get(f"{API}/upgrades?state=proposed").get_json()["items"]
    assert [one["name"] for one in listed] == ["other"]


def test_a_target_without_nodes_has_nothing_to_upgrade(fleet: Fleet) -> None:
    for name in NAMES:
        fleet.rooms.nodes.remove(name, BY)
    answer = fleet.propose()
    assert answer.status_code == 409
    assert "no node is reported" in answer.get_json()["detail"]


def test_a_caller_that_is_limited_to_targets_meets_only_their_upgrades(fleet: Fleet) -> None:
    fleet.propose()
    assert fleet.answer(1) == "start"
    limited = fleet.who("dev", "read", "upgrade", "approve", targets=["dev-*"])
    for path in ("", "/may-start"):
        answer = fleet.client.get(f"{API}/upgrades/roll{path}", headers=limited)
        assert answer.status_code == 403
    for what in ("stop", "resume", "roll-back", "leave-out", "approve", "retract"):
        body = {} if what in ("approve", "retract") else {"reason": "x"}
        body |= {"nodes": ["n1"]} if what == "leave-out" else {}
        assert fleet.act(what, limited, **body).status_code == 403
    assert fleet.client.get(f"{API}/upgrades", headers=limited).get_json()["items"] == []
    fleet.tool = limited
    assert fleet.propose("mine").status_code == 403
