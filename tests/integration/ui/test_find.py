"""The palette: one text is a question, a name, an id or an error."""

from __future__ import annotations

import re

import pytest
from ui_marks import post

QUESTION = {"target": "inference-l4", "stack": {"cuda": "12.4", "arch": "sm_70"}}
ERROR = "RuntimeError: CUDA error: no kernel image is available for execution on the device"


def _find(pages, text, **headers):
    return pages("read", "gate").get("/ui/find", query_string={"q": text}, headers=headers)


@pytest.mark.parametrize(
    "text",
    [
        "torch 2.4 cu124 @ prod-a100",
        "is pytorch 2.4 + cu124 allowed on prod-a100?",
        "torch\n2.4\ncu124 @ PROD-A100",
    ],
)
def test_a_question_in_words_is_answered_at_once_with_what_was_assumed(pages, stocked, text):
    shown = _find(pages, text).text
    verdict = stocked.gate.preview({"target": "prod-a100", "stack": {"torch": "2.4.1+cu124"}})
    assert ("Allowed" if verdict.allowed else "Denied") in shown
    assert all(finding.rule in shown for finding in verdict.findings[:3])
    assert "torch=2.4.1+cu124" in shown
    assert "2.4.1, the newest known" in shown
    assert "torch 2.4.0" in shown  # the other release of the series, with its own verdict
    assert "/ui/ask?target=prod-a100&amp;stack=torch%3D2.4.1%2Bcu124" in shown


def test_nothing_that_is_asked_in_passing_is_logged(pages, stocked):
    _find(pages, "torch 2.4.1 cu124 @ prod-a100")
    assert not stocked.decisions.list_decisions().items


def test_a_question_without_a_target_is_answered_for_each(pages, stocked):
    shown = _find(pages, "cuda 12.4 sm_70").text
    for name in stocked.gate.snapshot().targets:
        assert f"/ui/ask?target={name}&amp;stack=cuda%3D12.4%2Carch%3Dsm_70" in shown


def test_a_word_that_cannot_be_read_shows_no_answer_and_the_way_out(pages):
    shown = _find(pages, "torch 2.4.1 @ prod-a10").text
    assert "Did you mean prod-a100?" in shown
    assert "Allowed" not in shown
    assert "Denied" not in shown


def test_the_beginning_of_an_id_leads_to_its_verdict(pages, stocked):
    verdict = stocked.gate.decide(QUESTION, asked_by="ci", source="rest").id
    for text in (verdict, verdict[:9], verdict[3:11]):
        answer = _find(pages, text)
        assert answer.headers["Location"].endswith(f"/ui/verdicts/{verdict}")
        assert f"/ui/verdicts/{verdict}" in _find(pages, text, HX_Request="true").text


def test_a_run_and_its_host_are_found(kept_pages, kept):
    run = kept.rooms.runs.list(limit=1).items[0].id
    client = kept_pages()
    assert client.get(f"/ui/find?q={run}").headers["Location"].endswith(run)
    assert f"/ui/runs/{run}" in client.get(f"/ui/find?q={run[:8]}", headers=HX).text
    host = kept.rooms.runs.hosts().items[0].name
    assert "staging host" in client.get(f"/ui/find?q={host}").text


HX = {"HX-Request": "true"}


@pytest.mark.parametrize(
    ("text", "place"),
    [("CG101", "/ui/rules/CG101"), ("prod-a100", "/ui/targets/prod-a100")],
)
def test_the_name_of_one_thing_leads_to_it(pages, text, place):
    assert _find(pages, text).headers["Location"].endswith(place)


def test_an_image_is_offered_to_be_asked_about_and_is_not_read(pages):
    shown = _find(pages, "registry.example/team/app:1.4 @ prod-a100").text
    assert "/ui/ask?target=prod-a100&amp;image=registry.example%2Fteam%2Fapp%3A1.4" in shown
    assert "/ui/decisions?image=registry.example" in shown


def test_an_error_shows_its_cause(pages):
    assert "To confirm" in _find(pages, ERROR).text


def test_a_name_that_is_nearly_right_is_suggested(pages):
    assert "/ui/targets/prod-a100" in _find(pages, "pord-a100").text


def test_who_may_not_ask_finds_names_and_gets_no_verdict(pages):
    shown = pages(anonymous=("read",)).get("/ui/find?q=cuda+12.4+@+prod-a100").text
    assert "Denied" not in shown
    assert "Allowed" not in shown


@pytest.mark.parametrize(
    ("text", "leads_to"),
    [
        ("torch\n2.4.1\ncu124\n@ prod-a100", "/ui/find?q=torch+2.4.1+cu124+%40+prod-a100"),
        ("--index-url https://wheels.example/simple\ntorch==2.4.1\nnumpy==1.26.0\n", "/ui/ask?"),
        ("registry.example/team/app:1.4", "/ui/ask?image="),
    ],
)
def test_pasted_text_goes_where_it_is_read(pages, text, leads_to):
    answer = post(pages("read", "gate"), "find/paste", text=text)
    assert leads_to in answer.headers["Location"]


def test_a_pasted_log_shows_its_cause_and_leads_to_triage(pages):
    shown = post(pages("read", "gate"), "find/paste", text=f"Traceback\n{ERROR}\n").text
    assert "Open in Triage" in shown
    assert ERROR in shown


def test_pasted_text_that_means_nothing_stays_in_the_form(pages):
    answer = post(pages("read", "gate"), "find/paste", text="hello, is this on?\nwell\n")
    assert answer.status_code == 400
    assert "hello, is this on?" in answer.text
    assert "Paste an error" in answer.text


def test_every_page_has_the_palette(pages):
    for path in ("", "entries", "ask"):
        shown = pages().get(f"/ui/{path}").text
        assert re.search(r'<form class="find" action="/ui/find"', shown)


def test_the_page_ask_takes_words_and_says_what_it_took_them_for(pages):
    client = pages("read", "gate")
    words = {"target": "prod-a100", "stack": "torch 2.4\ncu124"}
    shown = client.get("/ui/ask", query_string=words).text
    assert "using 2.4.1" in shown
    assert 'name="stack" value="torch=2.4.1+cu124"' in shown
    assert ">torch=2.4.1+cu124</textarea>" in shown


@pytest.mark.parametrize(
    ("fields", "hint"),
    [
        ({"target": "prod-a100", "stack": "troch 2.4"}, "Did you mean torch?"),
        ({"target": "dev-rtx", "stack": "torch 2.4.1 @ prod-a100"}, "remove one of them"),
    ],
)
def test_words_that_ask_cannot_read_leave_no_answer_and_stay_typed(pages, fields, hint):
    shown = pages("read", "gate").get("/ui/ask", query_string=fields)
    assert shown.status_code == 400
    assert hint in shown.text
    assert f">{fields['stack']}</textarea>" in shown.text
    assert 'class="panel answer' not in shown.text


@pytest.mark.parametrize("gpu", ["H100", "h100 80 GB"])
def test_a_question_about_a_gpu_is_answered_for_each_pool_that_has_it(pages, gpu):
    shown = _find(pages, f"torch 2.8 @ {gpu}").text
    assert "Runs on 2 of 2 pools" in shown
    assert "blessed as torch28-cu128, if its cuDNN and NCCL are the wheel" in shown
    assert shown.count("driver 580.95.05") == 2
    assert "inference-l4" not in shown


def test_a_gpu_that_no_pool_has_is_asked_about_by_itself(pages):
    shown = _find(pages, "torch 2.8 @ V100").text
    assert "Runs on" not in shown
    assert "CG901" in shown
