"""Addresses that lead nowhere lead to a search."""

from __future__ import annotations

import re

import pytest


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("targets/prod-a10", "/ui/targets/prod-a100"),
        ("targets/prod-a1OO", "/ui/targets/prod-a100"),
        ("entries/torch29-cu13O", "/ui/entries/torch29-cu130"),
        ("waivers/legacy-orc", "/ui/waivers/legacy-ocr"),
        ("rules/cg80", "/ui/rules/CG801"),
    ],
)
def test_a_mistyped_address_leads_to_a_search_that_finds_what_was_meant(pages, path, meant):
    client = pages()
    answer = client.get(f"/ui/{path}")
    assert answer.status_code == 404
    search = re.search(r'href="(/ui/find\?q=[^"]*)"', answer.text)[1]
    assert meant in client.get(search).text


def test_who_may_not_read_learns_no_names(pages):
    answer = pages(anonymous=()).get("/ui/nowhere/prod-a10")
    assert "/ui/find?" not in answer.text
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
