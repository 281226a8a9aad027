"""How pages look, and what is kept of lists: for persons, tokens and browsers."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from ui_marks import post

from compatgate.kit.ui.preferences import MAX_VIEWS, Preferences
from compatgate.service.tokens.principal import Principal

LOOKS = {"theme": "dark", "density": "compact", "zone_choice": "named", "zone": "europe/berlin"}


def heads(text: str) -> list[str]:
    """The columns of a page's first table."""
    return re.findall(r'<th scope="col"[^>]*><a[^>]*>([^<]*)</a>', text)


def choose(client, listed: str, every: str, *shown: str, **fields: str):
    names = {f"column.{key}": "on" for key in shown}
    return post(client, "preferences/columns", list=listed, every=every, **names, **fields)


def test_looks_are_kept_in_a_browser_that_is_not_signed_in(pages):
    client = pages()
    assert post(client, "preferences", **LOOKS).status_code == 303
    text = client.get("/ui/entries").text
    assert 'data-theme="dark" data-density="compact"' in text
    assert "+01:00" in client.get("/ui/preferences").text or "+02:00" in text
    assert 'data-theme="auto" data-density="comfortable"' in pages().get("/ui/entries").text


def test_looks_of_a_token_are_kept_for_it_on_every_browser(pages, stocked):
    secret = stocked.tokens.create("mine", ["read"], by="tester").secret
    one, two, other = pages(), pages(), pages("read")
    for client in (one, two):
        post(client, "sign-in", token=secret)
    post(one, "preferences", **LOOKS)
    assert 'data-density="compact"' in two.get("/ui/keys").text
    assert 'data-density="comfortable"' in other.get("/ui/keys").text
    post(one, "sign-out")
    assert 'data-density="comfortable"' in one.get("/ui/keys").text


def test_persons_are_told_apart_by_the_subject_that_the_issuer_gives(stocked):
    ann = Principal("Ann", frozenset({"read"}), "is_1", kind="person", subject="https://i 17")
    renamed = Principal("Ann B", frozenset({"read"}), "is_2", kind="person", subject="https://i 17")
    stocked.preferences.save(ann.identity, Preferences(density="compact"))
    assert stocked.preferences.find(renamed.identity) == Preferences(density="compact")
    other = Principal("Ann", frozenset({"read"}), "is_3", kind="person", subject="https://i 18")
    assert stocked.preferences.find(other.identity) is None
    stocked.preferences.delete(ann.identity)
    assert stocked.preferences.find(ann.identity) is None


def test_what_was_chosen_before_signing_in_goes_along(pages, stocked):
    client = pages()
    post(client, "preferences", **LOOKS)
    post(client, "sign-in", token=stocked.tokens.create("late", ["read"], by="tester").secret)
    assert 'data-theme="dark"' in client.get("/ui/keys").text


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
        ({"zone": "Berlin"}, "did you mean Europe/Berlin?"),
        ({"zone": ""}, "is not a time zone"),
        ({"density": "tiny"}, "comfortable, compact"),
        ({"theme": "pink"}, "auto, light, dark"),
    ],
)
def test_a_choice_that_does_not_exist_is_refused_with_those_that_do(pages, wrong, said):
    answer = post(pages(), "preferences", **{**LOOKS, **wrong})
    assert answer.status_code == 400
    assert said in answer.text


def test_a_list_shows_the_columns_that_its_reader_chose(pages):
    client = pages("read")
    every = "name,status,components,targets"
    assert {"Status", "Targets"} <= set(heads(client.get("/ui/entries").text))
    choose(client, "entries", every, "name", "status", "components", next="/ui/entries")
    text = client.get("/ui/entries").text
    assert "Targets" not in heads(text)
    assert "Targets" in client.get("/ui/entries?format=csv").text.splitlines()[0]
    assert "<strong>entries</strong>: targets" in client.get("/ui/preferences").text
    choose(client, "entries", every, all="yes")
    assert "Targets" in heads(client.get("/ui/entries").text)


def test_columns_of_the_address_go_before_those_that_are_kept(pages):
    client = pages()
    assert heads(client.get("/ui/entries?columns=name,status").text) == ["Entry", "Status"]
    wrong = client.get("/ui/entries?columns=name,stat")
    assert wrong.status_code == 400
    assert "status" in wrong.text


def test_a_list_keeps_at_least_one_column(pages):
    answer = choose(pages(), "entries", "name,status")
    assert answer.status_code == 400
    assert "choose at least one column" in answer.text


def test_a_view_brings_back_filters_order_and_columns(pages):
    client = pages("read")
    asked = "status=blessed&sort=-name&columns=name,status&cursor=x&format=csv"
    saved = post(client, "preferences/views", list="entries", query=asked, name=" Mine  now ",
                 next="/ui/entries")  # fmt: skip
    assert saved.status_code == 303
    text = client.get("/ui/entries").text
    href = re.search(r'<li><a href="([^"]*)">Mine now</a>', text)[1].replace("&amp;", "&")
    assert href == "/ui/entries?columns=name%2Cstatus&sort=-name&status=blessed"
    shown = client.get(href).text
    assert 'aria-current="true">Mine now' in shown
    assert heads(shown) == ["Entry", "Status"]
    assert "revoked" not in re.search(r"<tbody>.*</tbody>", shown, re.S)[0]
    assert "Mine now" in client.get("/ui/preferences").text
    assert "Mine now" not in pages().get("/ui/entries").text
    post(client, "preferences/views/delete", list="entries", name="Mine now")
    assert ">Mine now</a>" not in client.get("/ui/entries").text


def test_a_hostile_name_of_a_view_is_text(pages):
    client = pages("read")
    name = """<img src=x onerror=alert(1)>'" """
    post(client, "preferences/views", list="runs", query="a=<script>", name=name)
    for path in ("preferences", "runs"):
        text = client.get(f"/ui/{path}").text
        assert "&lt;img src=x" in text
        assert "<img src=x" not in text
        assert "a=<script>" not in text


def test_views_have_a_ceiling_and_a_name(pages):
    client = pages("read")
    for number in range(MAX_VIEWS):
        fields = {"list": "runs", "query": "state=failed", "name": f"view {number}"}
        assert post(client, "preferences/views", **fields).status_code == 303
    more = post(client, "preferences/views", list="runs", query="", name="one more")
    assert (more.status_code, "at most 20 views" in more.text) == (400, True)
    again = post(client, "preferences/views", list="runs", query="", name="view 3")
    assert again.status_code == 303
    for name in ("", " ", "x" * 61, "a\u202eb"):
        assert (
            post(client, "preferences/views", list="runs", query="", name=name).status_code == 400
        )
    assert post(client, "preferences/views", list="../x", query="", name="n").status_code == 400


def test_a_browser_keeps_no_more_than_a_cookie_holds(pages):
    client = pages()
    long = "image=" + "x" * 1900
    answers = [
        post(client, "preferences/views", list="runs", query=long, name=f"view {n}").status_code
        for n in range(2)
    ]
    assert answers == [303, 400]
    client.set_cookie("compatgate_preferences", "bm90IGpzb24")
    assert client.get("/ui/entries").status_code == 200


def test_a_narrow_screen_shows_the_status_below_the_name(pages):
    row = re.search(r"<tbody>.*?</tr>", pages().get("/ui/entries").text, re.S)[0]
    assert row.count('class="narrow"') == row.count("is-badge wide") == 1
