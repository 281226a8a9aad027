"""The first page."""

from __future__ import annotations

from compatgate.kit.http.requests import to_struct
from compatgate.service.matrix.service import Authorship
from compatgate.service.nodes.schemas import EXAMPLE, Report


def test_it_says_what_needs_attention(pages):
    text = pages().get("/ui/").text
    assert "driver branch 535 is past its end of life" in text
    assert "No denials." in text


def test_runs_of_the_last_day_that_failed_are_named(run_pages, ran):
    run = ran.sick()
    text = run_pages().get("/ui/").text
    assert f'/ui/runs/{run}"' in text
    assert "conv-only on prod-a100 was inconclusive: conv-forward-0: " in text


def test_images_of_one_stack_are_one_line_of_what_was_denied_most(pages, stocked):
    for n in range(3):
        body = {
            "target": "inference-l4",
            "stack": {"cuda": "12.4", "arch": "sm_70"},
            "image": f"registry.example/a:{n}",
        }
        stocked.decide(body, asked_by="ci", source="rest")
    text = pages().get("/ui/").text
    assert "3 ×" in text
    assert "CG201 no code for L4" in text


def test_an_empty_gate_teaches_the_first_step(gate):
    from compatgate.service.web.app import create_app
    from compatgate.service.web.call import Settings

    client = create_app(gate, Settings(frozenset({"read"}))).test_client()
    text = client.get("/ui/").text
    assert "compatgate matrix import" in text


def test_nodes_that_drifted_are_among_what_needs_attention(pages, stocked):
    client = pages()
    assert "/ui/drift?target" not in client.get("/ui/").text
    stocked.nodes.report(to_struct(EXAMPLE, Report), by="agent")
    text = client.get("/ui/").text
    assert '<a href="/ui/drift?target=prod-a100">prod-a100</a>' in text
    assert "1 of 1 node reports driver 550.54.15 instead of 535.183.01" in text
    stocked.nodes.remove("gpu-17", Authorship("mara", "scrapped"))
    assert "/ui/drift?target" not in client.get("/ui/").text


def test_all_that_needs_attention_can_be_seen(kept_pages, kept, monkeypatch):
    monkeypatch.setattr("compatgate.service.home.pages._USUAL_NOTICES", 1)
    client = kept_pages()
    few, whole = client.get("/ui/").text, client.get("/ui/?all=yes").text
    assert 'href="/ui/?all=yes"' in few
    assert few.count("<li><span class=") == 1
    assert whole.count("<li><span class=") > 1
    assert "?all=yes" not in whole.partition("<main")[2]
