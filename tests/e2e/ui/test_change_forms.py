"""Forms of changes: fields and YAML say the same, and nothing is sent twice."""

from __future__ import annotations

import re
from time import sleep

from playwright.sync_api import expect
from ui_axe import violations


def test_fields_and_yaml_follow_each_other_while_one_types(open_page):
    page = open_page("entries/torch24-cu124/edit", signed_in=True)
    yaml, fields = page.get_by_label("The whole document"), page.locator("#fields")
    yaml.fill("# ours\n" + yaml.input_value().replace("status: blessed", "status: revoked # slow"))
    expect(fields.locator("[name=status]")).to_have_value("revoked")
    expect(page.locator("#effects")).to_contain_text("newly denied")
    fields.get_by_label("Owner").fill("team-ml")
    kept = re.compile(r"^# ours\n.*owner: team-ml.*status: revoked # slow", re.S)
    expect(yaml).to_have_value(kept)
    fields.get_by_label("Targets").fill("nowhere")
    expect(fields.locator("#wrong-targets")).to_contain_text("nowhere")
    expect(page.locator("#wrong-yaml")).to_contain_text("line")
    assert violations(page) == []


def test_enter_in_a_field_checks_the_document(open_page):
    page = open_page("new-target", signed_in=True)
    page.get_by_label("Name", exact=True).fill("prod-a100")
    page.get_by_label("Driver").first.fill("550.54.15")
    page.get_by_label("Driver").first.press("Enter")
    expect(page.get_by_role("alert").first).to_contain_text("gpu is missing")
    expect(page.get_by_label("The whole document")).to_have_value(
        "apiVersion: compatgate.dev/v1\nkind: Target\nmetadata:\n  name: prod-a100\nspec:\n"
        "  policy:\n    mode: enforce\n    onUnknown: fail\n  pools:\n  - driver: 550.54.15\n"
    )


def test_a_form_on_its_way_is_not_sent_again(open_page):
    page = open_page("new-target", signed_in=True)
    sent = []
    page.route("**/ui/new-target", lambda route: sent.append(route) or sleep(0.3) or route.abort())
    page.get_by_label("Reason", exact=True).fill("twice")
    page.evaluate(
        """() => {
          const button = document.querySelector("main button[value=create]");
          button.click();
          button.click();
          setTimeout(() => button.click(), 100);
        }"""
    )
    page.wait_for_timeout(1000)
    assert len([one for one in sent if one.request.method == "POST"]) == 1


def test_what_is_typed_is_there_again_until_it_is_stored(open_page, api):
    page = open_page("new-waiver", signed_in=True)
    page.get_by_role("textbox", name="Owner").fill("team-ml")
    page.goto(page.url.replace("new-waiver", "waivers"))
    page.go_back()
    page.reload()
    expect(page.get_by_role("textbox", name="Owner")).to_have_value("team-ml")
    expect(page.get_by_role("status").first).to_contain_text("What you typed here before is back")
    assert violations(page) == []
    page.get_by_role("button", name="Discard it").click()
    expect(page.get_by_role("textbox", name="Owner")).to_have_value("")


def test_a_server_that_is_away_is_said_once_where_one_types(open_page):
    page = open_page("new-upgrade", signed_in=True, expected=("ERR_INTERNET_DISCONNECTED",))
    page.get_by_label("Name, unique").fill("late")
    page.get_by_role("combobox", name="Target").select_option("prod-a100")
    page.get_by_role("combobox", name="Driver").fill("580")
    page.get_by_label("Reason", exact=True).fill("try")
    page.context.set_offline(True)
    for _ in range(2):
        page.get_by_role("button", name="Propose").click()
        expect(page.get_by_role("alert").first).to_contain_text("cannot be reached")
    expect(page.locator(".form-note")).to_have_count(1)
    expect(page.get_by_label("Name, unique")).to_have_value("late")
    page.context.set_offline(False)


def test_a_conflict_shows_what_changed_meanwhile(open_page, api):
    spec = {"targets": ["prod-a100"], "components": {"torch": "2.2.*"}, "status": "candidate"}
    named = {"metadata": {"name": "twice"}, "spec": spec}
    api("POST", "entries", named | {"reason": "try"})
    try:
        page = open_page("entries/twice/edit", signed_in=True)
        page.get_by_role("textbox", name="Owner").fill("team-ml")
        other = named | {"spec": spec | {"status": "blessed"}, "reason": "it passed"}
        api("PUT", "entries/twice", other)
        page.get_by_label("Reason", exact=True).fill("an owner")
        page.get_by_role("button", name="Save").click()
        expect(page.locator("#meanwhile")).to_contain_text("it passed")
        expect(page.locator("#meanwhile ins")).to_have_text("blessed")
        expect(page.get_by_role("textbox", name="Owner")).to_have_value("team-ml")
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_role("status").first).to_contain_text("Changed twice")
        assert api("GET", "entries/twice")["metadata"]["owner"] == "team-ml"
    finally:
        api("DELETE", "entries/twice?reason=over")
