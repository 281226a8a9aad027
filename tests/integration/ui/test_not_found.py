"""Addresses that lead nowhere suggest others."""

from __future__ import annotations

import re

import pytest


def _suggested(answer):
    """Where the suggestions of a page lead."""
    assert answer.status_code == 404
    _, found, rest = answer.text.partition("Did you mean")
    return re.findall(r'<li><a href="([^"]*)"', rest.partition("</ul>")[0]) if found else []


@pytest.mark.parametrize(
    ("path", "first"),
    [
        ("targets/prod-a10", "/ui/targets/prod-a100"),
        ("targets/prod-a1OO", "/ui/targets/prod-a100"),
        ("target/prod-a100", "/ui/targets/prod-a100"),
        ("entries/torch29-cu13O", "/ui/entries/torch29-cu130"),
        ("entries/prod-a100", "/ui/targets/prod-a100"),
        ("waivers/legacy-orc", "/ui/waivers/legacy-ocr"),
        ("rules/cg80", "/ui/rules/CG801"),
        ("decision", "/ui/decisions"),
        ("matirx", "/ui/matrix"),
        ("nodes/nowhere", "/ui/nodes"),
    ],
)
def test_a_mistyped_address_leads_to_what_was_meant(pages, path, first):
    assert _suggested(pages().get(f"/ui/{path}"))[0] == first


def test_a_mistyped_run_leads_to_runs_that_begin_like_it(pages, stocked, monkeypatch):
    known = ("run_0a1b2c3d", "run_9f9f9f9f")

    def find_ids(beginning, *, limit):
        return tuple(one for one in known if one.startswith(beginning))[:limit]

    monkeypatch.setattr(stocked.runs, "find_ids", find_ids)
    client = pages()
    for given in ("run_0a1b2c3", "run_0a1b2czz"):
        assert _suggested(client.get(f"/ui/runs/{given}"))[0] == "/ui/runs/run_0a1b2c3d"


def test_every_suggestion_leads_somewhere(pages):
    client = pages()
    for path in ("targets/prod", "entries/torch", "rules/CG80", "runs/run_0", "suites/smok"):
        for place in _suggested(client.get(f"/ui/{path}")):
            assert client.get(place).status_code == 200


def test_a_word_that_is_near_to_nothing_suggests_to_search(pages):
    answer = pages().get("/ui/qqqqqqqqqqqqqqq")
    assert _suggested(answer) == []
    assert "Find by name" in answer.text


def test_who_may_not_read_learns_no_names(pages):
    answer = pages(anonymous=()).get("/ui/nowhere/prod-a10")
    assert _suggested(answer) == []
    assert "prod-a100" not in answer.text


def test_a_token_for_some_targets_learns_no_other_names(pages, stocked):
    limited = stocked.tokens.create("limited", ["read"], by="t", targets=["staging-*"]).secret
    sent = {"Authorization": f"Bearer {limited}", "Accept": "text/html"}
    answer = pages().get("/ui/nowhere/prod-a10", headers=sent)
    assert "prod-a100" not in answer.text


@pytest.mark.parametrize("path", ["%00/x", "targets/%3Cscript%3Ealert(1)%3C/script%3E", "a" * 4000])
def test_a_hostile_address_is_text(pages, path):
    answer = pages().get(f"/ui/{path}")
    assert answer.status_code == 404
    assert "<script>alert" not in answer.text
