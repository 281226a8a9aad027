"""Forms of changes: fields and YAML say the same, and nothing is sent twice."""

from __future__ import annotations

import re

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
    stopped = page.evaluate(
        """() => {
          const form = document.querySelector("main form[method=post]");
          const stopped = [];
          addEventListener("submit", (event) => {
            stopped.push(event.defaultPrevented);
            event.preventDefault();  // the page stays
          });
          for (let press = 0; press < 2; press += 1) form.dispatchEvent(
            new SubmitEvent("submit", { bubbles: true, cancelable: true }));
          dispatchEvent(new PageTransitionEvent("pageshow"));
          form.dispatchEvent(new SubmitEvent("submit", { bubbles: true, cancelable: true }));
          return stopped;
        }"""
    )
    assert stopped == [False, True, False]
