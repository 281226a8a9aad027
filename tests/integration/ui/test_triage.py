"""The page Triage: an error is pasted, and its causes are read, without scripts."""

from __future__ import annotations

import pytest
from ui_marks import post

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
ERROR = "CUDA driver version is insufficient for CUDA runtime version"


def causes(client, **fields):
    return post(client, "triage/causes", **fields)


def test_the_navigation_leads_to_the_form(pages):
    client = pages("gate", "read")
    assert 'href="/ui/triage"' in client.get("/ui/").text
    shown = client.get("/ui/triage").text
    assert 'name="text"' in shown
    assert "<option>prod-a100</option>" in shown


def test_a_pasted_error_gets_its_cause(pages, stocked):
    client = pages("gate")
    before = stocked.decisions.list_decisions(limit=5).items
    answer = causes(client, text=ERROR)
    assert answer.status_code == 200
    assert 'id="cause-driver-too-old"' in answer.text
    assert "/ui/rules/CG101" in answer.text
    assert ERROR in answer.text
    assert "<code>nvidia-smi</code>" in answer.text
    assert stocked.decisions.list_decisions(limit=5).items == before


def test_a_stack_beside_it_gets_fixes_that_were_evaluated(pages):
    place = {"driver": "450.80.02", "gpu": "A100-SXM4-80GB", "stack": "cuda=12.4"}
    shown = causes(pages("gate"), text=ERROR, **place).text
    assert "fails here" in shown
    assert "verified" in shown
    assert "/ui/ask?driver=" in shown
    held = causes(pages("gate"), text=ERROR, **{**place, "driver": "580.95.05"}).text
    assert "Look for another cause" in held


def test_an_unknown_error_is_not_claimed(pages):
    shown = causes(pages("gate"), text="fatal: not a git repository").text
    assert "No known error found." in shown


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"text": " "}, "is empty"),
        ({"text": "x" * (256 * 1024 + 1)}, "characters"),
        ({"text": ERROR, "stack": "cuda=12.4"}, "pool"),
        ({"text": ERROR, "target": "prod-a100"}, "stack"),
        ({"text": ERROR, "driver": "new", "gpu": "L4", "stack": "cuda=12.4"}, "driver"),
    ],
)
def test_a_wrong_question_is_explained(pages, fields, told):
    answer = causes(pages("gate"), **fields)
    assert 400 <= answer.status_code < 500
    assert 'role="alert"' in answer.text
    assert told in answer.text.partition('role="alert"')[2]


def test_a_hostile_text_is_text(pages):
    answer = causes(pages("gate"), text=f"CUDA out of memory {HOSTILE}", stack="")
    assert HOSTILE not in answer.text
    assert "<script>alert" not in answer.text
    assert "&lt;script&gt;" in answer.text
