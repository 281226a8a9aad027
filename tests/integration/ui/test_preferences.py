"""How pages look, which a cookie of the browser keeps, and the columns of lists."""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime

import pytest
from ui_marks import post

LOOKS = {"theme": "dark", "zone_choice": "named", "zone": "europe/berlin"}


def heads(text: str) -> list[str]:
    """The columns of a page's first table."""
    return re.findall(r'<th scope="col"[^>]*><a[^>]*>([^<]*)</a>', text)


def test_looks_are_kept_in_the_browser_signed_in_or_not(pages, stocked):
    client = pages()
    assert post(client, "preferences", **LOOKS).status_code == 303
    text = client.get("/ui/entries").text
    assert 'data-theme="dark"' in text
    assert "+01:00" in client.get("/ui/preferences").text or "+02:00" in text
    assert 'data-theme="auto"' in pages().get("/ui/entries").text
    post(client, "sign-in", token=stocked.tokens.create("late", ["read"], by="tester").secret)
    assert 'data-theme="dark"' in client.get("/ui/keys").text


def test_the_button_of_a_page_changes_the_theme_alone(pages):
    client = pages()
    post(client, "preferences", **LOOKS)
    assert post(client, "theme", theme="light", next="/ui/entries").location == "/ui/entries"
    text = client.get("/ui/preferences").text
    assert 'data-theme="light"' in text
    assert "(Europe/Berlin)" in text


def test_times_are_in_the_zone_of_the_reader_with_utc_at_hand(pages, stocked):
    at = stocked.matrix.get("Entry", "torch24-cu124").updated_at
    client = pages()
    utc = f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    assert f'title="{utc}"' in client.get("/ui/entries").text
    post(client, "preferences", **{**LOOKS, "zone": "Asia/Kolkata"})
    found = re.search(r'title="([^"]*) \+05:30, ([^"]*)"', client.get("/ui/entries").text)
    assert found
    assert found[2] == utc
    local = datetime.fromisoformat(f"{found[1]}+05:30")
    assert local == at.replace(microsecond=0)


def test_the_zone_of_the_browser_is_what_its_script_told_and_utc_before(pages):
    client = pages()
    post(client, "preferences", **{**LOOKS, "zone_choice": "browser"})
    assert "The time zone of this browser is unknown" in client.get("/ui/preferences").text
    client.set_cookie("compatgate_zone", "America%2FSt_Johns")
    assert re.search(r"-0[23]:30</time> \(America/St_Johns\)", client.get("/ui/preferences").text)
    client.set_cookie("compatgate_zone", "../../etc/passwd")
    assert "UTC</time>" in client.get("/ui/preferences").text


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"zone": "Berlin"}, "Did you mean Europe/Berlin?"),
        ({"zone": ""}, "is not a time zone"),
        ({"theme": "pink"}, "auto, light, dark"),
    ],
)
def test_a_choice_that_does_not_exist_is_refused_with_those_that_do(pages, wrong, said):
    answer = post(pages(), "preferences", **{**LOOKS, **wrong})
    assert answer.status_code == 400
    assert said in answer.text


@pytest.mark.parametrize("cookie", [b"not json", b'{"theme": "pink"}', b'{"zone": 3}', b"[]"])
def test_a_cookie_that_cannot_be_read_means_the_defaults(pages, cookie):
    client = pages()
    client.set_cookie("compatgate_preferences", base64.urlsafe_b64encode(cookie).decode())
    assert 'data-theme="auto"' in client.get("/ui/entries").text
    client.set_cookie("compatgate_preferences", "%%%")
    assert 'data-theme="auto"' in client.get("/ui/entries").text


def test_a_cookie_of_an_earlier_release_keeps_theme_and_zone(pages):
    client = pages()
    body = b'{"theme":"dark","density":"compact","zone":"Asia/Kolkata","hidden":{"runs":["id"]}}'
    client.set_cookie("compatgate_preferences", base64.urlsafe_b64encode(body).decode())
    text = client.get("/ui/preferences").text
    assert 'data-theme="dark"' in text
    assert "(Asia/Kolkata)" in text


def test_the_address_says_which_columns_a_list_shows(pages):
    client = pages("read")
    text = client.get("/ui/entries?status=blessed").text
    assert {"Status", "Targets"} <= set(heads(text))
    href = re.search(r'<a href="([^"]*)">Hide Targets</a>', text)[1].replace("&amp;", "&")
    narrow = client.get(href).text
    assert "Targets" not in heads(narrow)
    assert "status=blessed" in href
    assert "Targets" in client.get(f"{href}&format=csv").text.splitlines()[0]
    again = re.search(r'<a href="([^"]*)">Show Targets</a>', narrow)[1].replace("&amp;", "&")
    assert "Targets" in heads(client.get(again).text)


def test_columns_of_the_address_exist_and_one_is_left(pages):
    client = pages()
    assert heads(client.get("/ui/entries?columns=name,status").text) == ["Entry", "Status"]
    alone = client.get("/ui/entries?columns=name").text
    assert heads(alone) == ["Entry"]
    assert "Hide Entry" not in alone
    wrong = client.get("/ui/entries?columns=name,stat")
    assert wrong.status_code == 400
    assert "status" in wrong.text


def test_a_narrow_screen_shows_the_status_below_the_name(pages):
    row = re.search(r"<tbody>.*?</tr>", pages().get("/ui/entries").text, re.S)[0]
    assert row.count('class="narrow"') == row.count("is-badge wide") == 1
