"""Links that show one verdict without a token."""

from __future__ import annotations

import asyncio
import copy
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest
from flask.testing import FlaskClient

from compatgate.check.deciders import ServerDecider
from compatgate.errors import Forbidden, Gone
from compatgate.service.admission.schemas import EXAMPLES
from compatgate.service.gate import verdict_links
from compatgate.service.gate.service import Gate
from compatgate.service.gate.verdict_links import VerdictLinks
from compatgate.service.matrix.service import Authorship
from compatgate.service.web.app import EXTENSION
from compatgate.service.web.asgi import Front
from compatgate.service.webhooks.signatures import Secret

BASE = "https://gate.example"
HTML = {"Accept": "text/html,*/*;q=0.8"}
NOW = datetime(2026, 11, 3, 9, 30, tzinfo=UTC)
FIRST, SECOND = Secret("first", b"1" * 32), Secret("second", b"2" * 32)
ID, OTHER = f"vd_{'0a' * 16}", f"vd_{'0b' * 16}"
DENIED = {"target": "prod-a100", "stack": {"cuda": "12.4", "arch": ["sm_70"]}}
ALSO_DENIED = {"target": "prod-a100", "stack": {"cuda": "12.4", "arch": ["sm_90"]}}


def links(*secrets: Secret, **settings: Any) -> VerdictLinks:
    return VerdictLinks(secrets or (FIRST,), BASE, **settings)


def test_a_key_opens_its_verdict_until_its_end():
    key = links().make_key(ID, NOW)
    ends = links().check(ID, key, NOW)
    assert ends == datetime(2026, 11, 10, 10, tzinfo=UTC)
    assert links().check(ID, key, ends - timedelta(seconds=1)) == ends
    with pytest.raises(Gone, match="ended on 2026-11-10 10:00:00 UTC"):
        links().check(ID, key, ends)


def test_links_of_one_hour_are_equal_so_that_equal_denials_stay_equal():
    made = {links().link(ID, NOW + timedelta(minutes=after)) for after in (1, 15, 29)}
    assert len(made) == 1
    short = links(valid_for=timedelta(minutes=5))
    assert short.check(ID, short.make_key(ID, NOW), NOW) == NOW + timedelta(minutes=5)


@pytest.mark.parametrize(
    "change",
    [
        lambda key: "",
        lambda key: key[:-1],
        lambda key: f"{key}A",
        lambda key: key.replace(".", ".-", 1)[:-1],
        lambda key: f"{int(key.partition('.')[0]) + 3600}.{key.partition('.')[2]}",
        lambda key: f"0{key}",
        lambda key: key.partition(".")[2],
        lambda key: f"{key}\n",
        lambda key: f"\u0661{key[1:]}",
    ],
)
def test_a_changed_key_opens_nothing(change: Callable[[str], str]):
    with pytest.raises(Forbidden):
        links().check(ID, change(links().make_key(ID, NOW)), NOW)


def test_a_key_opens_no_other_verdict():
    with pytest.raises(Forbidden):
        links().check(OTHER, links().make_key(ID, NOW), NOW)


def test_a_rotation_keeps_old_links_until_the_old_key_is_removed():
    old = links(FIRST).make_key(ID, NOW)
    during = links(SECOND, FIRST)
    during.check(ID, old, NOW)
    assert during.make_key(ID, NOW) == links(SECOND).make_key(ID, NOW)
    with pytest.raises(Forbidden):
        links(SECOND).check(ID, old, NOW)


def test_keys_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch):
    compared = []

    def compare(a: str, b: str) -> bool:
        compared.append((a, b))
        return a == b

    monkeypatch.setattr(verdict_links.hmac, "compare_digest", compare)
    made = links(FIRST).make_key(ID, NOW)
    links(FIRST, SECOND).check(ID, made, NOW)
    assert len(compared) == 2  # a match ends no search early


@pytest.fixture
def open_gate(make_client: Callable[..., FlaskClient], gate: Gate) -> FlaskClient:
    """A gate with links, whose callers need a token for everything else."""
    return make_client(anonymous=frozenset(), verdict_links=links(), public_url=BASE)


def ask(client: FlaskClient, gate: Gate, question: dict[str, Any] = DENIED) -> dict[str, Any]:
    name = f"ci-{len(gate.tokens.list().items)}"
    secret = gate.tokens.create(name, ["gate"], by="tester").secret
    sent = {"Authorization": f"Bearer {secret}"}
    answer: dict[str, Any] = client.post("/api/v1/gate", json=question, headers=sent).get_json()
    return answer


def local(link: str) -> str:
    assert link.startswith(f"{BASE}/v/")
    return link.removeprefix(BASE)


def test_the_answer_carries_the_link_and_the_stored_verdict_does_not(open_gate, gate):
    answer = ask(open_gate, gate)
    again = ask(open_gate, gate)
    assert answer["link"] == again["link"]
    assert "link" not in gate.show_verdict(answer["id"])


def test_no_answer_has_a_link_unless_the_operator_says_so(client, gate):
    answer = ask(client, gate)
    assert "link" not in answer
    opened = client.get(f"/v/{answer['id']}?key={links().make_key(answer['id'], NOW)}")
    assert opened.status_code == 302
    assert client.get(f"/v/{answer['id']}/card.svg?key=x").status_code == 404


def test_the_option_off_asks_for_a_token_as_ever(make_client, gate):
    client = make_client(anonymous=frozenset())
    verdict_id = ask(client, gate)["id"]
    key = links().make_key(verdict_id, datetime.now(UTC))
    answer = client.get(f"/v/{verdict_id}?key={key}", headers=HTML, follow_redirects=True)
    assert "CG201" not in answer.text
    assert answer.request.path == "/ui/sign-in"


def test_a_preview_has_no_link_because_nothing_stores_it(open_gate, gate):
    secret = gate.tokens.create("previews", ["gate"], by="tester").secret
    sent = {"Authorization": f"Bearer {secret}"}
    answer = open_gate.post("/api/v1/gate/preview", json=DENIED, headers=sent).get_json()
    assert "link" not in answer


def test_the_page_says_why_and_how_without_a_token(open_gate, gate):
    answer = ask(open_gate, gate)
    page = open_gate.get(local(answer["link"]), headers=HTML)
    assert page.status_code == 200
    for said in ("denied", "CG201", answer["findings"][0]["fixes"][0]["message"].split()[0]):
        assert said in page.text
    assert "How do I get this allowed?" in page.text
    assert f"compatgate check --target prod-a100 --stack cuda=12.4,arch=sm_70 --server {BASE}" in (
        page.text
    )
    assert f'href="/ui/verdicts/{answer["id"]}"' in page.text


def test_the_page_shows_nothing_else_of_the_gate(open_gate, gate):
    by = Authorship("tester", "for the test")
    body = gate.matrix.get("Target", "prod-a100").document
    other = {**body, "metadata": {"name": "secret-b200", "owner": "secret team"}}
    gate.matrix.create("Target", other, by)
    first, second = ask(open_gate, gate), ask(open_gate, gate, ALSO_DENIED)
    for accept in (HTML, {}):
        shown = open_gate.get(local(first["link"]), headers=accept)
        assert shown.status_code == 200
        for hidden in ("secret-b200", "secret team", second["id"], "ci-0", "ci-1"):
            assert hidden not in shown.text
    page = open_gate.get(local(first["link"]), headers=HTML).text
    for hidden in ("<nav", "<form", "<script", "<input", "form_token", "/ui/decisions", "/ui/runs"):
        assert hidden not in page


def test_the_page_is_kept_by_no_cache_and_told_to_no_site(open_gate, gate):
    answer = ask(open_gate, gate)
    page = open_gate.get(local(answer["link"]), headers=HTML)
    assert page.headers["Cache-Control"] == "no-store, private"
    assert page.headers.getlist("Referrer-Policy") == ["no-referrer"]
    assert page.headers["X-Robots-Tag"].startswith("noindex")
    assert "script-src" not in page.headers["Content-Security-Policy"]
    assert "form-action 'none'" in page.headers["Content-Security-Policy"]
    assert "Set-Cookie" not in page.headers


def test_the_owner_of_the_target_is_named(open_gate, gate):
    by = Authorship("tester", "for the test")
    row = gate.matrix.get("Target", "prod-a100")
    named = {**row.document["metadata"], "owner": "ml-platform"}
    gate.matrix.change("Target", "prod-a100", {**row.document, "metadata": named}, by)
    unblessed = {"target": "prod-a100", "stack": {"cuda": "12.4", "arch": ["sm_80"]}}
    answer = ask(open_gate, gate, unblessed)
    page = open_gate.get(local(answer["link"]), headers=HTML).text
    assert "the owner of prod-a100, ml-platform" in page


@pytest.mark.parametrize(
    ("status", "change"),
    [
        (403, lambda path, other: path.replace(path[3:38], other)),
        (403, lambda path, other: path[:-1] + ("A" if path[-1] != "A" else "B")),
        (403, lambda path, other: path.partition("=")[0] + "="),
        (403, lambda path, other: path.replace("/v/vd_", "/v/%ff_")),
        (410, None),
    ],
)
def test_a_link_that_does_not_open_is_a_page_that_says_so(open_gate, gate, status, change):
    answer, other = ask(open_gate, gate), ask(open_gate, gate, ALSO_DENIED)
    path = local(answer["link"])
    if change is None:
        past = datetime.now(UTC) - timedelta(days=8)
        path = f"/v/{answer['id']}?key={links().make_key(answer['id'], past)}"
    else:
        path = change(path, other["id"])
    page = open_gate.get(path, headers=HTML)
    assert page.status_code == status
    assert page.mimetype == "text/html"
    assert "Sign in" in page.text
    assert "CG201" not in page.text
    assert open_gate.get(path).mimetype == "application/problem+json"
    picture = path.replace("?", "/card.svg?")
    assert open_gate.get(picture).status_code == status


def test_a_key_for_a_verdict_that_was_never_given_says_so(open_gate):
    path = f"/v/{ID}?key={links().make_key(ID, datetime.now(UTC))}"
    assert open_gate.get(path, headers=HTML).status_code == 404
    assert open_gate.get(path).status_code == 404


def test_a_program_gets_markdown(open_gate, gate):
    answer = ask(open_gate, gate)
    shown = open_gate.get(local(answer["link"]))
    assert shown.mimetype == "text/markdown"
    assert shown.text.startswith("### ❌ compatgate: DENIED")
    assert answer["link"] in shown.text


def test_badge_and_card_are_pictures_without_active_content(open_gate, gate):
    hostile = '"><script>alert(1)</script>\x1b[31m'
    answer = ask(open_gate, gate, {**DENIED, "image": hostile})
    for name in ("badge.svg", "card.svg"):
        picture = open_gate.get(local(answer["link"]).replace("?", f"/{name}?"))
        assert picture.mimetype == "image/svg+xml"
        root = ElementTree.fromstring(picture.text)
        assert not [e for e in root.iter() if e.tag.rpartition("}")[2] == "script"]
        assert "denied" in picture.text.lower()
        assert picture.headers["Cache-Control"] == "no-store, private"
    page = open_gate.get(local(answer["link"]), headers=HTML).text
    assert "<script" not in page
    assert re.search(
        rf'<meta property="og:image" content="{BASE}/v/{answer["id"]}/card.svg\?key=', page
    )
    assert open_gate.get(local(answer["link"]).replace("?", "/other.svg?")).status_code == 404


def test_who_signs_in_gets_the_same_link_to_share(make_client, gate):
    client = make_client(verdict_links=links(), public_url=BASE)
    answer = client.post("/api/v1/gate", json=DENIED).get_json()
    page = client.get(f"/ui/verdicts/{answer['id']}").text
    assert answer["link"] in page
    assert "Public link, no token needed" in page
    assert "card.svg" in page


def test_the_denial_of_a_pod_gives_the_link(open_gate, gate):
    secret = gate.tokens.create("cluster", ["gate"], by="tester").secret
    review = copy.deepcopy(EXAMPLES["pod"])
    notes = review["request"]["object"]["metadata"]["annotations"]
    notes["compatgate.dev/stack"] = "cuda=12.1,arch=sm_90"
    path, sent = "/hooks/kubernetes/validate", {"Authorization": f"Bearer {secret}"}
    answer = open_gate.post(path, json=review, headers=sent).get_json()["response"]
    link = next(word for word in answer["status"]["message"].split() if word.startswith(BASE))
    assert open_gate.get(local(link), headers=HTML).status_code == 200


async def _ask_front(front: Front, headers: dict[str, str]) -> list[dict[str, Any]]:
    transport = httpx.ASGITransport(front)
    async with httpx.AsyncClient(transport=transport, base_url=BASE) as client:
        return [
            (await client.post("/api/v1/gate", json=DENIED, headers=headers)).json()
            for _ in range(2)
        ]


def test_answers_from_memory_have_the_link_as_well(open_gate, gate):
    app = open_gate.application
    secret = gate.tokens.create("front", ["gate"], by="tester").secret
    front = Front(app, app.extensions[EXTENSION], 1)
    answers = asyncio.run(_ask_front(front, {"Authorization": f"Bearer {secret}"}))
    assert answers[0]["link"] == answers[1]["link"]
    assert open_gate.get(local(answers[1]["link"]), headers=HTML).status_code == 200


def test_check_shows_the_link_of_the_gate():
    decider = ServerDecider(None, None, "")  # type: ignore[arg-type]
    link = f"{BASE}/v/{ID}?key=x"
    assert decider.link({"id": ID, "link": link}) == link
    unrecorded = ServerDecider(None, None, "", recorded=False)  # type: ignore[arg-type]
    assert unrecorded.link({"id": ID, "link": link}) == ""


def test_hooks_give_the_link(open_gate, gate):
    secret = gate.tokens.create("deploy", ["gate"], by="tester").secret
    sent = {"Authorization": f"Bearer {secret}"}
    answer = open_gate.post("/hooks/generic", json=DENIED, headers=sent).get_json()
    page = open_gate.get(local(answer["url"]), headers=HTML)
    assert page.status_code == 200
