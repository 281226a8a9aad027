"""Incidents of upgrades: one to roll back, and one that waits for a person."""

from __future__ import annotations

from typing import Any

import pytest
from flask.testing import FlaskClient
from upgrade_fleet import NEW, OLD, Fleet

from compatgate.service.app import Rooms


@pytest.fixture
def fleet(rooms: Rooms, client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    return Fleet(rooms, client, monkeypatch)


def find(fleet: Fleet, kind: Any) -> list[tuple[str, str, str]]:
    """State, level and message of the incidents of a kind, after a survey."""
    fleet.rooms.incidents.survey(thorough=False)
    rows = fleet.rooms.incidents.list(kind=kind).items
    return [(row.state, row.level, row.message) for row in rows]


def test_a_rollback_is_told_with_its_reason_before_any_tool_has_asked(fleet: Fleet) -> None:
    fleet.propose()
    assert find(fleet, "upgrade-rollback") == []
    fleet.roll(1, "n1")
    fleet.ask()
    assert find(fleet, "upgrade-rollback") == []
    fleet.report("n3", driver=NEW)
    ((state, level, message),) = find(fleet, "upgrade-rollback")
    assert (state, level) == ("open", "fail")
    assert message.startswith("roll of prod-a100 must be rolled back (2 nodes still on driver")
    assert "eu/n3 got the new driver before wave" in message
    incident = fleet.rooms.incidents.list(kind="upgrade-rollback").items[0]
    assert [(m.about, m.name, m.targets) for m in incident.members] == [
        ("upgrade", "roll", ("prod-a100",))
    ]


def test_a_rollback_ends_when_no_node_has_its_driver_and_its_day_is_over(fleet: Fleet) -> None:
    fleet.propose()
    fleet.roll(1, "n1")
    fleet.act("roll-back", reason="NCCL times out")
    assert find(fleet, "upgrade-rollback")[0][0] == "open"
    fleet.pass_time(hours=25)
    fleet.report()
    assert find(fleet, "upgrade-rollback")[0][0] == "open", "n1 still has it"
    fleet.report("n1", driver=OLD)
    assert find(fleet, "upgrade-rollback")[0][0] == "ended"


def test_another_upgrade_of_the_target_that_begins_ends_the_incident(fleet: Fleet) -> None:
    fleet.propose()
    fleet.roll(1, "n1")
    fleet.act("roll-back", reason="no")
    assert find(fleet, "upgrade-rollback")[0][0] == "open"
    assert fleet.propose("second").status_code == 201
    assert find(fleet, "upgrade-rollback")[0][0] == "open", "it has not begun"
    assert fleet.ask(name="second")["answer"] == "start"
    assert find(fleet, "upgrade-rollback")[0][0] == "ended"


def test_an_upgrade_that_began_and_is_held_waits_for_a_person(fleet: Fleet) -> None:
    fleet.propose()
    assert find(fleet, "upgrade-held") == [], "nobody has begun it"
    fleet.roll(1, "n1")
    fleet.ask()
    assert find(fleet, "upgrade-held") == [], "its soak ends by itself"
    fleet.act("stop", reason="pager")
    ((state, level, message),) = find(fleet, "upgrade-held")
    assert (state, level) == ("open", "warn")
    assert "waits for a person: tool stopped the upgrade: pager" in message
    fleet.act("resume", reason="quiet")
    assert find(fleet, "upgrade-held")[0][0] == "ended"


def test_a_wave_that_its_tool_left_waits_for_a_person(fleet: Fleet) -> None:
    fleet.propose()
    fleet.ask(1)
    fleet.pass_time(minutes=80)
    ((_, _, message),) = find(fleet, "upgrade-held")
    assert "no one has continued wave 1 since" in message


def test_drift_to_the_driver_that_an_upgrade_rolls_out_is_news_alone(fleet: Fleet) -> None:
    fleet.propose()
    fleet.roll(1, "n1")
    fleet.ask()
    ((state, level, message),) = find(fleet, "drift")
    assert (state, level) == ("open", "info")
    assert message.endswith("as roll rolls it out")
    fleet.act("roll-back", reason="NCCL times out")
    ((_, level, message),) = find(fleet, "drift")
    assert (level, "rolls it out" in message) == ("warn", False)
