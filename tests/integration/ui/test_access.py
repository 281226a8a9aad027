"""Who sees what, and which forms are believed."""

from __future__ import annotations

import hashlib
import html
import re
from base64 import b64encode

import pytest
from ui_marks import form_token, post
from werkzeug.datastructures import MultiDict


def test_who_may_not_read_is_asked_to_sign_in(pages):
    answer = pages(anonymous=()).get("/ui/matrix?q=torch")
    assert answer.status_code == 303
    assert answer.headers["Location"] == "/ui/sign-in?next=%2Fui%2Fmatrix%3Fq%3Dtorch"


def test_a_fragment_is_not_redirected_into_the_page(pages):
    answer = pages(anonymous=()).get("/ui/matrix", headers={"HX-Request": "true"})
    assert answer.status_code == 204
    assert answer.headers["HX-Redirect"].startswith("/ui/sign-in")


def test_a_session_has_the_rights_of_its_token(pages):
    assert pages("read", anonymous=()).get("/ui/matrix").status_code == 200
    refused = pages("read", anonymous=()).get("/ui/ask")
    assert refused.status_code == 403
    assert "lacks the scope gate" in refused.text


def test_the_chain_is_recomputed_for_administrators_alone(pages):
    reader, admin = pages("read", anonymous=()), pages("admin", anonymous=())
    assert "audit/verify" not in reader.get("/ui/audit").text
    assert reader.get("/ui/audit/verify").status_code == 403
    assert reader.get("/api/v1/audit/verify").status_code == 403
    assert "audit/verify" in admin.get("/ui/audit").text
    assert admin.get("/ui/audit/verify").status_code == 200


def test_a_session_reads_the_json_that_pages_link_to(pages):
    client = pages("read", anonymous=())
    assert client.get("/api/v1/targets/prod-a100").json["metadata"]["name"] == "prod-a100"
    assert client.get("/api/v1/tokens").status_code == 403
    assert pages(anonymous=()).get("/api/v1/targets/prod-a100").status_code == 401


def test_a_session_changes_nothing_over_rest_and_answers_no_other_site(pages):
    client = pages("admin", anonymous=())
    assert client.post("/api/v1/tokens", json={"name": "x", "scopes": ["read"]}).status_code == 401
    assert client.delete("/api/v1/waivers/x?reason=y").status_code == 401
    for site in ("cross-site", "same-site"):
        headers = {"Sec-Fetch-Site": site}
        assert client.get("/api/v1/targets/prod-a100", headers=headers).status_code == 401


def test_the_cookie_is_out_of_reach_of_scripts(pages, stocked):
    client = pages()
    secret = stocked.tokens.create("me", ["read"], by="tester").secret
    cookie = post(client, "sign-in", token=secret).headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    assert secret not in cookie


def test_over_tls_the_cookie_is_bound_to_the_host(pages, stocked):
    client = pages()
    secret = stocked.tokens.create("me", ["read"], by="tester").secret
    base = "https://gate.example"
    page = client.get("/ui/keys", base_url=base).text
    token = page.partition('form_token" value="')[2].partition('"')[0]
    answer = client.post("/ui/sign-in", base_url=base, data={"token": secret, "form_token": token})
    assert answer.headers["Set-Cookie"].startswith("__Host-compatgate_session=")
    assert "Secure" in answer.headers["Set-Cookie"]


def test_a_revoked_token_ends_its_sessions(pages, stocked, monkeypatch):
    monkeypatch.setattr("compatgate.service.access.tokens.CACHE_SECONDS", 0.0)
    client = pages("read", anonymous=())
    assert client.get("/ui/matrix").status_code == 200
    stocked.tokens.revoke("read-1", by="tester")
    assert client.get("/ui/matrix").status_code == 303


def test_signing_out_ends_the_session_for_good(pages, monkeypatch):
    monkeypatch.setattr("compatgate.service.access.tokens.CACHE_SECONDS", 0.0)
    client = pages("read", anonymous=())
    cookie = client.get_cookie("compatgate_session").value
    post(client, "sign-out")
    client.set_cookie("compatgate_session", cookie)
    assert client.get("/ui/matrix").status_code == 303


def test_signing_in_is_in_the_audit_log(pages, stocked):
    pages("read")
    assert stocked.audit.list_audit(limit=1).items[0].action == "session.open"


@pytest.mark.parametrize("token", [None, "", "0" * 64, "\ud800".encode("utf-8", "replace")])
def test_a_form_of_another_site_does_nothing(pages, token):
    client = pages("gate", anonymous=())
    fields = {"target": "prod-a100", "stack": "cuda=12.4"}
    if token is not None:
        fields["form_token"] = token
    answer = client.post("/ui/ask/keep", data=fields)
    assert answer.status_code == 403
    assert "another session" in answer.text


def test_without_a_session_a_form_is_bound_to_the_visit(pages, stocked):
    """Else another site could sign somebody in as somebody else."""
    secret = stocked.tokens.create("me", ["read"], by="tester").secret
    mine, theirs = pages(), pages()
    foreign = form_token(theirs)
    assert form_token(mine) != foreign
    fields = {"form_token": foreign, "token": secret}
    assert mine.post("/ui/sign-in", data=fields).status_code == 403
    assert pages().post("/ui/sign-in", data=fields).status_code == 403  # no visit at all
    assert post(mine, "sign-in", token=secret).status_code == 303


def test_a_form_of_another_browsers_session_does_nothing(pages):
    mine, theirs = pages("gate", anonymous=()), pages("gate", "read", anonymous=())
    fields = {"form_token": form_token(theirs), "target": "prod-a100", "stack": "cuda=12.4"}
    assert mine.post("/ui/ask/keep", data=fields).status_code == 403


def test_what_another_site_sends_is_refused_by_where_it_comes_from(pages):
    client = pages("gate", anonymous=())
    fields = {"form_token": form_token(client), "target": "prod-a100", "stack": "cuda=12.4"}
    headers = {"Sec-Fetch-Site": "cross-site"}
    assert client.post("/ui/ask/keep", data=fields, headers=headers).status_code == 403


def test_nothing_on_a_page_is_active_but_our_own_files(pages):
    policy = pages().get("/ui/matrix").headers["Content-Security-Policy"]
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy


def test_pages_have_no_inline_script_or_style(pages):
    client = pages()
    for path in ("", "matrix", "ask", "what-if", "keys", "sign-in"):
        text = client.get(f"/ui/{path}").text
        assert "<script>" not in text
        assert " style=" not in text
        assert " onclick=" not in text


def test_a_page_brings_its_styles_along_and_an_answer_to_a_script_does_not(pages):
    client = pages()
    answer = client.get("/ui/decisions")  # with charts
    styles = re.findall("<style>(.*?)</style>", answer.text, re.DOTALL)
    assert len(styles) == 2
    for style in styles:
        digest = b64encode(hashlib.sha256(style.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in answer.headers["Content-Security-Policy"]
    assert "stylesheet" not in answer.text
    assert "<style" not in client.get("/ui/ask", headers={"HX-Request": "true"}).text


def test_browsers_are_led_to_the_pages_and_programs_are_not(pages):
    client = pages()
    assert client.get("/", headers={"Accept": "text/html,*/*;q=0.8"}).status_code == 302
    assert client.get("/").json["name"] == "compatgate"
    assert client.get("/", headers={"Accept": "application/json"}).json["ui"] == "/ui/"


def test_files_are_packed_and_kept_for_ever(pages):
    client = pages()
    path = client.get("/ui/").text.partition('<script src="')[2].partition('"')[0]
    answer = client.get(path, headers={"Accept-Encoding": "gzip"})
    assert answer.headers["Content-Encoding"] == "gzip"
    assert "immutable" in answer.headers["Cache-Control"]
    assert client.get("/ui/static/x/../../pyproject.toml").status_code == 404


OWN = {"Sec-Fetch-Site": "same-origin"}
FILLED = [("name", "night & day"), ("why", "two\r\nlines"), ("rules", "CG801"), ("rules", "CG802")]


def hidden_fields(page):
    form = page.partition("Send again")[0].rpartition("<form")[2]
    found = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', form)
    return [(name, html.unescape(value)) for name, value in found]


def send(client, path, fields, **headers):
    return client.post(path, data=MultiDict(fields), headers=headers or OWN)


def test_a_form_that_outlives_its_session_keeps_every_field_and_is_sent_again(pages, stocked):
    client = pages("read", "bless")
    typed = [("form_token", form_token(client)), *FILLED]
    stocked.sessions.sign_out(client.get_cookie("compatgate_session").value)
    over = send(client, "/ui/new-waiver", typed)
    assert (over.status_code, "Your session has ended" in over.text) == (401, True)
    assert hidden_fields(over.text)[1:] == FILLED
    secret = stocked.tokens.create("again", ["read", "bless"], by="tester").secret
    post(client, "sign-in", token=secret)
    again = send(client, "/ui/new-waiver", hidden_fields(over.text))
    assert "signed in as again" in again.text  # made for the session before
    taken = send(client, "/ui/new-waiver", hidden_fields(again.text))
    assert taken.status_code == 400  # the form itself, with its own complaint
    assert "night &amp; day" in taken.text


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site", "Origin": "http://localhost"},
        {"Origin": "https://evil.example"},
        {"Accept": "text/html"},
        {**OWN, "HX-Request": "true"},
    ],
    ids=["another site", "another origin", "no origin", "a fragment"],
)
def test_words_of_other_sites_are_not_put_into_a_form(pages, headers):
    answer = send(pages(), "/ui/new-waiver", FILLED, **headers)
    assert answer.status_code in (401, 403)
    assert "night" not in answer.text


def test_a_form_without_tls_is_known_by_its_origin(pages):
    answer = send(pages(), "/ui/new-waiver", FILLED, Origin="http://localhost")
    assert hidden_fields(answer.text)[1:] == FILLED


def test_a_token_typed_to_sign_in_is_never_shown(pages):
    answer = send(pages(), "/ui/sign-in", [("token", "cg_secret"), ("form_token", "00")])
    assert answer.status_code == 403
    assert "cg_secret" not in answer.text
