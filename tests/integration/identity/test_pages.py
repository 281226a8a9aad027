"""People sign in on the pages of a running service, at a real issuer, and sign out."""

from __future__ import annotations

import re
import time
from html import unescape

import httpx
from oidc_issuer import Browser, Issuer
from serving import Server


def test_a_person_signs_in_and_out(
    served: Server, issuer: Issuer, gate_url: str, browser: Browser
) -> None:
    page = browser.get(f"{gate_url}/ui/tokens")  # leads to the form, and back later
    assert "Sign in with Example ID" in page.text
    assert 'name="token"' in page.text
    begin = re.search(r'href="(/ui/sign-in/issuer[^"]*)"', page.text)
    assert begin
    answer = browser.http.get(f"{gate_url}{unescape(begin[1])}")
    assert answer.headers["Cache-Control"] == "no-store"
    place = httpx.URL(answer.headers["Location"])
    assert place.params["code_challenge_method"] == "S256"
    assert place.params["redirect_uri"] == f"{gate_url}/ui/sign-in/done"
    assert {"state", "nonce", "code_challenge"} <= set(place.params)
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    page = browser.sign_in(browser.get(str(place)), "ada")
    assert (page.status_code, page.url.path) == (200, "/ui/tokens")
    assert "ada@example.org (ada)" in page.text
    secret = browser.http.cookies["compatgate_session"]
    page = browser.send(page, form=_form_of(page, "sign-out"))
    assert "Your session at this gate has ended." in page.text
    ended = re.search(r'http-equiv="refresh" content="0; url=([^"]+)"', page.text)
    assert ended
    assert unescape(ended[1]).startswith(f"{issuer.url}/session/end?client_id=compatgate&")
    assert "compatgate_session" not in browser.http.cookies
    browser.http.cookies.set("compatgate_session", secret, domain="127.0.0.1")
    page = browser.get(f"{gate_url}/ui/tokens")
    assert page.url.path == "/ui/sign-in"
    page = browser.get(unescape(ended[1]))
    assert "stay signed in" in page.text.lower()
    page = browser.send(page, logout="yes")
    assert str(page.url).startswith(f"{gate_url}/ui/sign-in")


def _form_of(page: httpx.Response, action: str) -> int:
    """The number of the form with this action."""
    forms = re.findall(r"<form\b(.*?)>", page.text)
    (found,) = (n for n, form in enumerate(forms) if f'action="/ui/{action}"' in form)
    return found


def test_what_a_person_does_carries_their_name(
    served: Server, issuer: Issuer, gate_url: str, browser: Browser
) -> None:
    page = browser.sign_in(browser.get(f"{gate_url}/ui/sign-in/issuer?next=/ui/tokens"), "ada")
    form = _form_of(page, "tokens/new")
    made = browser.send(page, form=form, name=f"by-ada-{time.time_ns()}", scopes="read")
    assert made.status_code == 200
    records = served.ask("GET", "/api/v1/audit?action=token.create", headers=served.bearer).json()
    assert records["items"][0]["actor"] == "ada@example.org (ada)"


def test_an_answer_opens_nothing_in_another_browser(
    served: Server, issuer: Issuer, gate_url: str, browser: Browser
) -> None:
    done = f"{gate_url}/ui/sign-in/done"
    page = browser.get(f"{gate_url}/ui/sign-in/issuer")
    place = browser.sign_in(page, "ada", until=done).headers["Location"]
    stranger = Browser()
    answer = stranger.http.get(place)
    assert answer.status_code == 401
    assert "This browser did not start a sign-in." in answer.text
    stranger.get(f"{gate_url}/ui/sign-in/issuer")
    answer = stranger.http.get(place)
    assert answer.status_code == 401
    assert "This answer belongs to another sign-in." in answer.text
    assert "compatgate_session" not in stranger.http.cookies
    assert browser.http.get(place).status_code == 303
    assert browser.http.get(place).status_code == 401  # the same browser, once more
    stranger.http.close()


def test_a_person_without_a_group_is_told_so(
    served: Server, issuer: Issuer, gate_url: str, browser: Browser
) -> None:
    page = browser.sign_in(browser.get(f"{gate_url}/ui/sign-in/issuer"), "cy")
    assert page.status_code == 403
    assert "No group of this account may use this gate." in page.text


def test_a_page_leads_to_no_other_site(
    served: Server, issuer: Issuer, gate_url: str, browser: Browser
) -> None:
    page = browser.get(f"{gate_url}/ui/sign-in/issuer?next=https://evil.example/")
    page = browser.sign_in(page, "ada")
    assert str(page.url) == f"{gate_url}/ui/"


def test_what_the_issuer_says_is_text(
    served: Server, issuer: Issuer, gate_url: str, browser: Browser
) -> None:
    begun = browser.http.get(f"{gate_url}/ui/sign-in/issuer")
    state = httpx.URL(begun.headers["Location"]).params["state"]
    said = "<script>hostile</script>\u202e"
    asked = {
        "state": state,
        "error": "x",
        "error_description": said,
        "iss": issuer.url,
        "more": "1",
    }
    answer = browser.http.get(f"{gate_url}/ui/sign-in/done", params=asked)
    assert answer.status_code == 401
    assert "&lt;script&gt;hostile" in answer.text
    assert "<script>hostile" not in answer.text
    assert "\u202e" not in answer.text
