"""The pages of targets, as the server makes them."""

from __future__ import annotations

import re

import pytest
from sqlalchemy import text

from compatgate.kit.http.requests import to_struct
from compatgate.kit.principal import Authorship
from compatgate.service.app import open_rooms
from compatgate.service.nodes.schemas import EXAMPLE, Report
from compatgate.web.pages import comparison as comparison_pages

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"


def test_the_list_says_what_runs_where(pages):
    shown = pages().get("/ui/targets").text
    for said in ("prod-a100", "tier=prod, team=training", "A100-SXM4-80GB", "512", "enforce"):
        assert said in shown


def test_the_list_counts_what_was_not_allowed_lately(pages, stocked):
    body = {"target": "inference-l4", "stack": {"cuda": "12.4", "arch": "sm_70"}}
    stocked.gate.decide(body, asked_by="ci", source="rest")
    shown = pages().get("/ui/targets").text
    assert '<a href="/ui/decisions?target=inference-l4&amp;allowed=no">1</a>' in shown


def test_the_list_is_filtered_sorted_and_exported(pages):
    client = pages()
    lines = client.get("/ui/targets?label=tier%3Dprod&sort=-nodes&format=csv").text.splitlines()
    assert lines[0] == 'Target,Labels,Owner,GPUs,Drivers,Nodes,Mode,Entries,"Denied, 7 d",Usable'
    assert [line.partition(",")[0] for line in lines[1:]] == ["prod-a100", "inference-l4"]
    nothing = client.get("/ui/targets?search=nowhere").text
    assert "No matches." in nothing


@pytest.mark.parametrize("query", ["sort=none", "gpus=L4", "cursor=x", "format=xml"])
def test_a_bad_address_says_what_is_wrong(pages, query):
    answer = pages().get(f"/ui/targets?{query}")
    assert answer.status_code == 400
    assert query.partition("=")[0] in answer.text


def test_a_target_tells_all_that_is_known_of_it(pages, stocked):
    stocked.gate.decide(
        {"target": "prod-a100", "stack": {"cuda": "12.4"}}, asked_by="ci", source="rest"
    )
    shown = pages().get("/ui/targets/prod-a100").text
    for said in (
        "a100-80",
        "535.183.01",
        "Failing stacks are denied.",
        "in a namespace like ml-*",
        "torch24-cu124",
        "no judged run yet",
        "legacy-ocr",
        'data-chart="stacked"',
        "Document as created",
        "/ui/matrix?q=prod-a100",
        "/ui/decisions?target=prod-a100&amp;since=",
    ):
        assert said in shown, said


def test_only_the_pages_own_table_is_sorted_by_its_address(pages):
    shown = pages().get("/ui/targets/prod-a100").text
    assert "sort=constraints" in shown
    assert "sort=compute" not in shown
    assert "sort=suite" not in shown


def test_evidence_says_what_still_counts(pages, stocked, by):
    from compatgate.core.matrix import Evidence
    from compatgate.core.versions import parse_version
    from compatgate.kit import clock
    from compatgate.service.matrix.snapshots.snapshot import add_evidence

    run = Evidence(
        "run_7", "smoke", "A100-SXM4-80GB", parse_version("driver", "535.104.05"),
        {"torch": parse_version("torch", "2.4.1")}, "passed", int(clock.now().timestamp()) - 60,
    )  # fmt: skip
    snapshot = add_evidence(stocked.gate.snapshot(), [run], 1)
    stocked.snapshots.current = lambda: snapshot
    shown = pages().get("/ui/targets/prod-a100").text
    assert "/ui/runs/run_7" in shown
    assert "it was on driver 535.104.05, the pool has 535.183.01" in shown


def test_nodes_that_differ_are_named(pages, stocked):
    client = pages()
    assert "No node reports yet." in client.get("/ui/targets/prod-a100").text
    stocked.nodes.report(to_struct(EXAMPLE, Report), by="agent")
    shown = client.get("/ui/targets/prod-a100").text
    assert "gpu-17" in shown
    assert "550.54.15" in shown
    assert "No node reports yet." in client.get("/ui/targets/inference-l4").text


def test_a_node_that_is_as_declared_does_not_differ(pages, stocked):
    node = {**EXAMPLE["nodes"][0], "probe": {"driver": "535.183.01"}}
    stocked.nodes.report(to_struct({**EXAMPLE, "nodes": [node]}, Report), by="agent")
    shown = pages().get("/ui/targets/prod-a100").text
    assert "Every reported node matches the target." in shown


def test_what_the_facts_no_longer_know_cannot_be_used_and_says_so(pages, stocked, database_url):
    with stocked.gate.database.writing() as session:
        change = "UPDATE targets SET document = replace(document, 'A100-SXM4-80GB', 'B999')"
        session.execute(text(change))
    later = open_rooms(database_url, overlays=[])
    try:
        stocked.snapshots.current = later.snapshots.current
        client = pages()
        shown = client.get("/ui/targets/prod-a100").text
        assert "The gate cannot answer for this target" in shown
        assert "B999" in shown
        assert "torch24-cu124" in shown
        assert "prod-a100,no" not in client.get("/ui/targets").text
        lines = client.get("/ui/targets?format=csv").text.splitlines()
        assert [line[-3:] for line in lines if line.startswith("prod-a100")] == [",no"]
    finally:
        later.close()


def test_a_name_that_does_not_exist_has_near_ones_named(pages):
    answer = pages().get("/ui/targets/prod-a10")
    assert answer.status_code == 404
    assert "prod-a100" in answer.text
    assert pages().get(f"/ui/targets/{HOSTILE.replace('/', '')}").status_code == 404


def test_nobody_sees_targets_where_reading_needs_a_token(pages):
    client = pages(anonymous=())
    assert "/ui/sign-in" in client.get("/ui/targets/prod-a100").headers["Location"]


def test_hostile_text_is_text(pages, stocked, by, target_body):
    pool = {"name": "p", "gpu": "L4", "driver": "580.95.05"}
    stocked.matrix.create("Target", target_body("made", pools=[pool]), by)
    stocked.gate.decide(
        {"target": "made", "stack": {"cuda": "12.4"}, "image": HOSTILE},
        asked_by=HOSTILE,
        source=HOSTILE,
    )
    client = pages()
    for path in ("targets", "targets/made", "decisions", f"targets?search={HOSTILE}",
                 f"targets?gpu={HOSTILE}", f"decisions?image={HOSTILE}"):  # fmt: skip
        shown = client.get(f"/ui/{path}").text
        assert "<script>alert" not in shown, path
        assert "<img src=x" not in shown, path
    assert "&lt;script&gt;" in client.get("/ui/decisions").text


def test_what_enforcing_packages_would_stop_has_a_page(pages, stocked):
    body = stocked.matrix.get("Target", "inference-l4").document
    body["spec"]["policy"]["packages"] = "audit"
    stocked.matrix.change("Target", "inference-l4", body, Authorship("ada", "to audit"))
    stack = {"cuda": "12.4", "torch": "2.4.1+cu124", "xformers": "0.0.99"}
    stocked.gate.decide({"target": "inference-l4", "stack": stack}, asked_by="ci", source="rest")
    client = pages()
    assert "/ui/targets/inference-l4/packages" in client.get("/ui/targets/inference-l4").text
    shown = client.get("/ui/targets/inference-l4/packages").text
    for said in ("xformers", "CG410", "packages: audit", "xformers=0.0.99[sm_89]"):
        assert said in shown, said
    lines = client.get("/ui/targets/inference-l4/packages?format=csv").text.splitlines()
    assert lines[1].startswith("xformers,0.0.99,CG410,1,")


def test_an_upgrade_is_planned_on_a_page_of_the_target(pages):
    client = pages()
    assert "/ui/what-if?target=prod-a100" in client.get("/ui/targets/prod-a100").text
    assert "--upgrade driver" in client.get("/ui/targets/prod-a100/plan").text
    shown = client.get("/ui/targets/prod-a100/plan?driver=580&cuda=").text
    told = ("Matrix: what needs an edited entry", "&lt;581", "Canary runs on the new", "580 LTSB")
    for said in told:
        assert said in shown
    assert client.get("/ui/what-if?target=prod-a100&driver=580").text.count("CG801") > 1
    newest = client.get("/ui/what-if?target=prod-a100&driver=newest").text
    assert "is the newest of branch" in newest
    assert "names none" in client.get("/ui/what-if?target=prod-a100&cuda=13.0").text
    wrong = client.get("/ui/targets/prod-a100/plan?driver=99")
    assert wrong.status_code == 400
    assert "is not a driver branch" in wrong.text


def test_a_long_what_if_shows_the_first_pairs_and_exports_all(pages, monkeypatch):
    client, place = pages(), "/ui/what-if?target=staging-h100&driver=525.60.13"
    whole = client.get(place).text
    assert "more pair" not in whole
    exported = client.get(f"{place}&format=csv").text
    monkeypatch.setattr(comparison_pages, "_MAX_SHOWN", 1)
    shown = client.get(place).text
    assert f"{len(exported.splitlines()) - 2:,} more pair" in shown
    assert shown.count('<td class="is-') < whole.count('<td class="is-')
    assert client.get(f"{place}&format=csv").text == exported


def test_what_happened_on_a_target_has_a_page(pages, stocked):
    client = pages()
    assert "/ui/targets/prod-a100/report" in client.get("/ui/targets/prod-a100").text
    shown = client.get("/ui/targets/prod-a100/report").text
    for said in ("Timeline", "create Target prod-a100", "changes of the matrix"):
        assert said in shown
    assert re.search(r'"is-name"><a href="/ui/revisions/\d+">revision \d+</a></td>', shown)
    wrong = client.get("/ui/targets/prod-a100/report?since=soon")
    assert wrong.status_code == 400
    assert "is not a time" in wrong.text


def test_a_target_that_enforces_packages_says_so(pages):
    shown = pages().get("/ui/targets/prod-a100/packages").text
    assert "The target already enforces packages" in shown
