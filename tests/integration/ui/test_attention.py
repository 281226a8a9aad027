"""The page of what needs attention."""

from __future__ import annotations

import re

from ui_marks import post

from compatgate.kit.http.requests import to_struct
from compatgate.kit.principal import Authorship
from compatgate.service.nodes.schemas import EXAMPLE, Report


def test_it_says_what_needs_attention(pages):
    text = pages().get("/ui/attention").text
    assert "driver branch 535 is past its end of life" in text
    assert "No denials." in text


def test_runs_of_the_last_day_that_failed_are_named(run_pages, ran):
    run = ran.sick()
    text = run_pages().get("/ui/attention").text
    assert f'/ui/runs/{run}"' in text
    assert "conv-only on prod-a100 was inconclusive: conv-forward-0: " in text


def test_images_of_one_stack_are_one_line_of_what_was_denied_most(pages, stocked):
    for n in range(3):
        body = {
            "target": "inference-l4",
            "stack": {"cuda": "12.4", "arch": "sm_70"},
            "image": f"registry.example/a:{n}",
        }
        stocked.gate.decide(body, asked_by="ci", source="rest")
    text = pages().get("/ui/attention").text
    assert "3 ×" in text
    assert "CG201 no code for L4" in text


def test_an_empty_gate_teaches_the_first_step(rooms):
    from compatgate.web.app import create_app
    from compatgate.web.service import Settings

    client = create_app(rooms, Settings(anonymous=frozenset({"read"}))).test_client()
    text = client.get("/ui/").text
    assert "compatgate matrix import" in text


def test_nodes_that_drifted_are_among_what_needs_attention(pages, stocked):
    client = pages()
    assert "/ui/drift?target" not in client.get("/ui/attention").text
    stocked.nodes.report(to_struct(EXAMPLE, Report), by="agent")
    text = client.get("/ui/attention").text
    assert '<a href="/ui/drift?target=prod-a100">prod-a100</a>' in text
    assert "1 of 1 node reports driver 550.54.15 instead of 535.183.01" in text
    stocked.nodes.remove("gpu-17", Authorship("mara", "scrapped"))
    assert "/ui/drift?target" not in client.get("/ui/attention").text


def test_each_kind_has_a_ceiling_and_leads_to_all_of_it(kept_pages, kept, monkeypatch):
    monkeypatch.setattr("compatgate.web.pages.attention._EACH_KIND", 1)
    text = kept_pages().get("/ui/attention").text
    assert re.search(r'href="/ui/incidents\?kind=[a-z-]+">\d+ more', text)
    assert text.count('class="incident"') == text.count('class="kind"') > 1


def test_what_is_snoozed_leaves_the_page(pages, stocked):
    client = pages("read", "operate")
    text = client.get("/ui/attention").text
    number = re.search(r'/ui/incidents/(\d+)"', text)[1]
    assert f'/ui/incidents/{number}"' in text
    gone = post(client, f"incidents/{number}/act", what="snooze", days="1", back="attention")
    assert (gone.status_code, gone.location) == (303, "/ui/attention")
    text = client.get("/ui/attention").text
    assert f'/ui/incidents/{number}"' not in text
    assert "1 snoozed" in text
    assert f"/ui/incidents/{number}" in client.get("/ui/incidents?state=snoozed").text
    shown = f"incidents/{number}/act"
    assert post(client, shown, what="snooze", days="many").status_code == 400
    assert post(client, shown, what="praise").status_code == 400
    assert post(client, shown, what="reopen").status_code == 303
    assert f'/ui/incidents/{number}"' in client.get("/ui/attention").text
    assert client.get("/ui/incidents/999").status_code == 404
    actions = [link.action for link in stocked.audit.list_audit(action="incident.").items]
    assert actions == ["incident.reopen", "incident.snooze"]
    assert ">Snooze<" not in pages("read").get(f"/ui/incidents/{number}").text


def test_a_quiet_fleet_needs_nobody(rooms):
    from compatgate.web.app import create_app
    from compatgate.web.service import Settings

    client = create_app(rooms, Settings(anonymous=frozenset({"read"}))).test_client()
    assert "Nothing needs attention." in client.get("/ui/attention").text
    assert "Nothing needs attention." in client.get("/ui/incidents").text


def test_a_postmortem_covers_all_targets(pages, stocked):
    for target in ("prod-a100", "inference-l4"):
        body = {"target": target, "stack": {"cuda": "12.4", "arch": "sm_70"}}
        stocked.gate.decide(body, asked_by="ci", source="rest")
    text = pages().get("/ui/report").text
    assert "2 decisions" in text
    for target in ("prod-a100", "inference-l4"):
        assert f"cuda 12.4, arch sm_70 on {target}" in text
        assert f"create Target {target}" in text
    assert pages().get("/ui/report?since=soon").status_code == 400
