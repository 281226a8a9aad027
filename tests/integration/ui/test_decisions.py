"""The decision log and verdicts, as the server shows them."""

from __future__ import annotations

import pytest
from attest_keys import signer_of

from compatgate.service.audit.attestations import SigningOptions
from compatgate.web.app import create_app
from compatgate.web.service import Settings

FAILS = {"target": "inference-l4", "stack": {"cuda": "12.4", "arch": "sm_70"}}
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"


def _decide(rooms, source="rest", **changes):
    return rooms.gate.decide({**FAILS, **changes}, asked_by="ci", source=source)


def test_the_log_is_newest_first_and_each_row_leads_to_its_verdict(pages, stocked):
    first = _decide(stocked)
    second = _decide(stocked, source="hook:kubernetes", target="dev-rtx")
    shown = pages().get("/ui/decisions").text
    assert shown.index(f"/ui/verdicts/{second.id}") < shown.index(f"/ui/verdicts/{first.id}")
    assert "CG201" in shown
    assert "cuda=12.4" in shown
    assert 'data-chart="stacked"' in shown


def test_a_bar_of_the_histogram_narrows_the_time_to_itself(pages, stocked):
    _decide(stocked)
    client = pages()
    narrowed = client.get("/ui/decisions")
    for _ in ("a day", "an hour", "a minute"):
        rows = narrowed.text.partition('data-chart="stacked"')[2].partition("</table>")[0]
        row = next(one for one in rows.split("<tr>")[2:] if 'data-value="1"' in one)
        place = row.partition('<a href="')[2].partition('"')[0]
        narrowed = client.get(place.replace("&amp;", "&"))
        assert narrowed.status_code == 200
        assert "1 decision<" in narrowed.text
    assert "Decisions by minute" in narrowed.text


def test_denials_are_grouped_by_cause_and_lead_to_their_decisions(pages, stocked):
    for image in ("a:1", "a:2", "b:1"):
        _decide(stocked, image=image)
    client = pages()
    shown = client.get("/ui/decisions?group=cause").text
    assert "1 cause<" in shown
    place = (
        shown.partition('id="causes"')[2]
        .partition("<tbody>")[2]
        .partition('<a href="')[2]
        .partition('"')[0]
    )
    assert "3 decisions" in client.get(place.replace("&amp;", "&")).text


def test_the_list_follows_live_without_and_with_scripts(pages, stocked):
    shown = pages().get("/ui/decisions?follow=yes").text
    assert 'hx-trigger="every 5s"' in shown
    assert '<noscript><meta http-equiv="refresh" content="5"></noscript>' in shown
    assert "every 5s" not in pages().get("/ui/decisions").text


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("", 2),
        ("target=dev-rtx", 1),
        ("verdict=fail", 2),
        ("allowed=no", 1),
        ("allowed=yes", 1),
        ("source=hook:kubernetes", 1),
        ("asked_by=nobody", 0),
        ("image=a:1", 1),
        ("image=a", 1),
        ("target=dev", 1),
        ("target=rtx", 0),
        ("source=hook", 1),
        ("rule=CG201", 1),
        ("rule=CG101", 0),
        ("since=2020-01-01&until=2020-01-02", 0),
        ("since=2020-01-01", 2),
    ],
)
def test_it_is_filtered_and_exported(pages, stocked, query, count):
    _decide(stocked)
    _decide(stocked, source="hook:kubernetes", target="dev-rtx", image="a:1")
    lines = pages().get(f"/ui/decisions?{query}&format=csv").text.splitlines()
    assert len(lines) == 1 + count


@pytest.mark.parametrize("query", ["allowed=perhaps", "since=yesterday", "cursor=!", "verdict=no"])
def test_a_bad_address_says_what_is_wrong(pages, query):
    answer = pages().get(f"/ui/decisions?{query}")
    assert answer.status_code == 400
    assert query.partition("=")[0] in answer.text


def test_a_long_log_has_a_next_page(pages, stocked):
    for number in range(53):
        _decide(stocked, image=f"a:{number}")
    client = pages()
    first = client.get("/ui/decisions").text
    following = first.partition('rel="next"')[0].rpartition('href="')[2].partition('"')[0]
    second = client.get(following.replace("&amp;", "&")).text
    assert "3 decisions" in second
    assert "a:2" in second
    assert len(client.get("/ui/decisions?format=csv").text.splitlines()) == 54


def test_an_empty_log_teaches_how_to_ask(pages):
    shown = pages().get("/ui/decisions").text
    assert "No decisions yet." in shown
    assert "compatgate check --target" in shown
    assert "No matches." in pages().get("/ui/decisions?source=rest").text


def test_a_verdict_is_explained_rule_by_rule(pages, stocked):
    verdict = _decide(stocked, image="registry.example/a:1")
    shown = pages().get(f"/ui/verdicts/{verdict.id}").text
    for said in (
        "CG201",
        "Source: ",
        "rules passed",
        "rules do not apply",
        "registry.example/a:1",
        "/ui/revisions/1",
        "No canary run.",
        "stated by the client",
        "/ui/ask?target=inference-l4&amp;stack=cuda%3D12.4%2Carch%3Dsm_70&amp;image=",
        f"/v/{verdict.id}",
        f"/api/v1/verdicts/{verdict.id}",
    ):
        assert said in shown, said
    for rule in (*verdict.checked.passed, *verdict.checked.not_applicable):
        assert f"/ui/rules/{rule}" in shown


def test_a_failing_stack_that_a_policy_lets_pass_is_not_called_allowed(pages, stocked):
    verdict = _decide(stocked, target="dev-rtx")
    assert (verdict.verdict, verdict.allowed) == ("fail", True)
    shown = pages().get(f"/ui/verdicts/{verdict.id}").text
    assert "Not enforced: CUDA 12.4 on dev-rtx would be denied</h1>" in shown
    assert "by a policy that only records" in shown
    assert "</span> not enforced</span>" in pages().get("/ui/decisions").text


def test_a_verdict_of_a_pool_asks_about_the_pool_again(pages, stocked):
    pool = {"driver": "535.104.05", "gpu": "A100-SXM4-80GB"}
    body = {"pool": pool, "stack": {"cuda": "12.4", "arch": ["sm_80", "sm_90"]}}
    verdict = stocked.gate.decide(body, asked_by="ci", source="rest")
    shown = pages().get(f"/ui/verdicts/{verdict.id}").text
    assert "/ui/ask?driver=535.104.05&amp;gpu=A100-SXM4-80GB" in shown
    assert "sm_80%2Bsm_90" in shown


def test_a_gate_that_signs_leads_to_the_attestation(pages, stocked):
    path = f"/ui/verdicts/{_decide(stocked).id}"
    assert "/attestation" not in pages().get(path).text
    signer = signer_of()
    settings = Settings(
        anonymous=frozenset({"read"}), signing=SigningOptions(lambda: signer, (signer.public_key,))
    )
    client = create_app(stocked, settings).test_client()
    leads_to = client.get(path).text.partition('/attestation"')[0].rpartition('"')[2]
    assert client.get(f"{leads_to}/attestation").status_code == 200


def test_only_who_may_do_so_is_offered_to_ask_and_to_waive(pages, stocked):
    path = f"/ui/verdicts/{_decide(stocked).id}"
    reader = pages(anonymous=("read",)).get(path).text
    assert "Ask again" not in reader
    assert "new-waiver" not in reader
    blesser = pages("read", "gate", "bless").get(path).text
    assert "Ask again" in blesser
    assert "/ui/new-waiver?rules=" in blesser


@pytest.mark.parametrize("verdict_id", ["vd_0", f"vd_{'0' * 32}", "%00", HOSTILE.replace("/", "")])
def test_a_verdict_that_was_never_given_is_not_found(pages, verdict_id):
    answer = pages().get(f"/ui/verdicts/{verdict_id}")
    assert answer.status_code in (400, 404)
    assert "<script>alert" not in answer.text


def test_hostile_text_is_text(pages, stocked):
    verdict = stocked.gate.decide({**FAILS, "image": HOSTILE}, asked_by=HOSTILE, source=HOSTILE)
    shown = pages("read", "bless").get(f"/ui/verdicts/{verdict.id}").text
    assert "<script>alert" not in shown
    assert "<img src=x" not in shown


def test_a_mistyped_link_to_a_verdict_is_a_page_with_suggestions(pages, stocked):
    verdict = _decide(stocked).id
    client = pages()
    html = {"Accept": "text/html"}
    wrong = f"{verdict[:-1]}{'0' if verdict[-1] != '0' else '1'}"
    for given in (wrong, f"{verdict}f", f"{verdict[:12]}xyz"):
        answer = client.get(f"/v/{given}", headers=html, follow_redirects=True)
        assert answer.status_code == 404
        assert f"/ui/verdicts/{verdict}" in answer.text
    short = client.get(f"/v/{verdict[:10]}", headers=html, follow_redirects=True)
    assert short.status_code == 200
    assert client.get("/v/nonsense", headers={"Accept": "application/json"}).status_code == 404
    assert "Show the latest denials" in client.get("/ui/verdicts/nonsense").text
