"""The pages of upgrades: proposed from a plan, started, stopped, rolled back; freezes."""

from __future__ import annotations

import re

import pytest
from ui_marks import Marks, post
from upgrade_fleet import NEW, OLD, Fleet

SCRIPT = "<script>hostile()</script>"


@pytest.fixture
def fleet(stocked, pages, monkeypatch) -> Fleet:
    client = pages(anonymous=("read", "gate", "operate"))
    return Fleet(stocked, client, monkeypatch)


@pytest.fixture
def browser(fleet, pages):
    return pages("read", "gate", "upgrade", "approve")


def propose(fleet, **given):
    """Propose an upgrade that owes nothing: every entry may end."""
    answer = fleet.propose(accepts=sorted(fleet.rooms.gate.snapshot().entries), **given)
    assert answer.status_code == 201, answer.text


def act(client, what, name="roll", page="act", **fields):
    return post(client, f"upgrades/{name}/{page}", what=what, **fields)


def test_a_plan_is_made_an_upgrade_and_its_waves_are_started_and_finished(fleet, browser):
    plan = browser.get(f"/ui/targets/prod-a100/plan?driver={NEW}")
    assert "wave 1: " in plan.text
    (place,) = [a for a in Marks(plan.text).all("href") if "/new-upgrade?" in a]
    form = Marks(browser.get(place).text)
    fields = {
        a["name"]: a.get("value", "on")
        for tag, a in form.elements
        if tag == "input" and a.get("name") not in (None, "q", "next", "theme", "form_token")
    }
    assert (fields["name"], fields["driver"]) == (f"prod-a100-{NEW}", NEW)
    given = fields | {"name": "roll", "target": "prod-a100", "reason": SCRIPT, "soak": "1h"}
    given["accepts"] = ", ".join(fleet.rooms.gate.snapshot().entries)
    del given["health"]
    answer = post(browser, "new-upgrade", **given)
    assert (answer.status_code, answer.location) == (303, "/ui/upgrades/roll")
    text = browser.get("/ui/upgrades/roll").text
    for part in ("Wave 1 of", "may start", "Start wave 1", "may-start?by=NAME"):
        assert part in text
    assert "GPU errors on upgraded nodes go unnoticed" in text
    assert SCRIPT not in text
    assert act(browser, "start", wave="2").status_code == 409
    assert act(browser, "start", wave="x").status_code == 400
    assert act(browser, "start", wave="1").status_code == 303
    text = browser.get("/ui/upgrades/roll").text
    assert "Continue wave 1" in text
    assert 'class="badge is-running"' in text.partition('id="now"')[2].partition("</h2>")[0]
    assert re.search(r'href="/ui/nodes/n1\?cluster=eu"', text)
    fleet.pass_time(minutes=10)
    fleet.report("n1", driver=NEW)
    fleet.ask()
    text = browser.get("/ui/upgrades/roll").text
    for part in ("soaks until", "n1 1/1", "finished"):
        assert part in text
    assert "1 of " in browser.get("/ui/upgrades").text


def test_the_part_that_refreshes_is_sent_again_only_when_it_has_changed(fleet, browser):
    propose(fleet)
    page = browser.get("/ui/upgrades/roll").text
    place = re.search(r'hx-get="([^"]+)"[^>]*hx-select="#live"', page)[1]
    assert browser.get(place).status_code == 204
    fleet.act("stop", reason="pager")
    again = browser.get(place)
    assert (again.status_code, "stopped the upgrade: pager" in again.text) == (200, True)
    fleet.act("roll-back", reason="over")
    last = browser.get(place).text
    assert 'id="live"' in last
    assert "hx-get" not in last.partition('id="live"')[2].partition(">")[0], "it goes on no more"


def test_it_is_stopped_resumed_and_rolled_back_with_a_reason(fleet, browser):
    propose(fleet)
    assert act(browser, "stop", reason="").status_code == 400
    assert act(browser, "stop", reason="jobs hang").status_code == 303
    assert "jobs hang" in browser.get("/ui/upgrades?state=stopped").text
    refused = act(browser, "stop", reason="again")
    assert refused.status_code == 409
    assert "is stopped already" in refused.text
    assert act(browser, "resume", reason="quiet").status_code == 303
    assert act(browser, "leave-out", nodes="", reason="x").status_code == 400
    assert act(browser, "leave-out", nodes="n2", reason="in repair").status_code == 303
    assert "in repair" in browser.get("/ui/upgrades/roll").text
    assert act(browser, "start", wave="1").status_code == 303
    fleet.report("n1", driver=NEW)
    assert act(browser, "roll-back", reason="NCCL times out").status_code == 303
    text = browser.get("/ui/upgrades/roll").text
    for part in ("Reinstall the former driver", "NCCL times out", f"a100-80 {OLD}"):
        assert part in text
    assert "matrix export --known-good prod-a100" in text
    assert 'value="stop"' not in text
    target = browser.get("/ui/targets/prod-a100").text
    assert "matrix export --known-good prod-a100" in target


def test_whoever_may_not_sees_no_buttons_and_is_refused(fleet, pages, browser):
    fleet.set_policy(approvals=2)
    propose(fleet)
    reader = pages("read", "gate")
    text = reader.get("/ui/upgrades/roll").text
    for button in ('value="stop"', 'value="start"', 'value="approve"'):
        assert button not in text
    assert "approval missing" in text
    assert act(reader, "stop", reason="x").status_code == 403
    assert act(reader, "approve", page="review").status_code == 403
    assert reader.get("/ui/new-upgrade").status_code == 403
    assert "/new-upgrade" not in reader.get(f"/ui/targets/prod-a100/plan?driver={NEW}").text
    assert "Start wave" not in browser.get("/ui/upgrades/roll").text
    assert act(browser, "approve", page="review").status_code == 303
    assert act(browser, "stop", page="review").status_code == 400
    assert "Start wave 1" in browser.get("/ui/upgrades/roll").text
    assert act(browser, "retract", page="review").status_code == 303


def test_a_form_that_is_refused_keeps_what_was_typed_and_names_the_field(fleet, browser):
    fields = {"target": "prod-a100", "driver": "new", "soak": "1h", "reason": "r", "name": "roll"}
    refused = post(browser, "new-upgrade", **fields)
    assert refused.status_code == 400
    for part in ("<code>driver</code>", 'value="roll"', "Labels whose value"):
        assert part in refused.text
    assert post(browser, "new-upgrade", **fields | {"target": ""}).status_code == 400
    unknown = post(browser, "new-upgrade", **fields | {"driver": NEW, "accepts": "torch24-cu12"})
    assert (unknown.status_code, "torch24-cu124" in unknown.text) == (404, True)


def test_freezes_are_made_shown_and_deleted(fleet, browser, pages):
    propose(fleet)
    fields = {
        "name": "year-end", "since": "2020-12-18T00:00", "until": "2126-01-04", "owner": "sre",
        "targets": "prod-*, dev-*", "reason": "stop <b>",
    }  # fmt: skip
    assert post(browser, "freezes/set", **fields | {"until": "soon"}).status_code == 400
    assert post(browser, "freezes/set", **fields | {"owner": ""}).status_code == 400
    assert post(browser, "freezes/set", **fields).status_code == 303
    text = browser.get("/ui/freezes").text
    for part in ("no wave starts", "prod-*, dev-*", "stop &lt;b&gt;", "year-end", "Delete"):
        assert part in text
    assert "year-end" in browser.get("/ui/upgrades").text
    shown = browser.get("/ui/upgrades/roll").text
    assert "Freeze year-end until" in shown
    assert post(pages("read"), "freezes/set", **fields).status_code == 403
    assert post(browser, "freezes/delete", name="year-end", reason="").status_code == 400
    assert post(browser, "freezes/delete", name="year-end", reason="over").status_code == 303
    assert "No freezes." in browser.get("/ui/freezes").text


def test_an_upgrade_is_found_by_its_name_and_shown_on_home(fleet, browser):
    propose(fleet)
    assert browser.get("/ui/find?q=roll").location == "/ui/upgrades/roll"
    assert "/ui/upgrades/roll" in browser.get("/ui/find?q=ROL").text
    assert "Upgrades in progress" in browser.get("/ui/attention").text
    fleet.act("roll-back", reason="no")
    assert "Upgrades in progress" not in browser.get("/ui/attention").text
