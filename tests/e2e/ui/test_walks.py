"""What people do in the browser, by keyboard alone, each in at most three actions.

A target is onboarded from nothing in eight. An action is a press of a button or link, a key that
leads to a page, or a field that is filled; going there with the key Tab is none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect
from ui_axe import dark_violations, violations
from ui_browser import reach
from ui_pictures import take_picture
from ui_runs import PASSED, SLOWER

SMI = Path(__file__).parents[2] / "fixtures/nvidia_smi/list-and-table.txt"
DENIED = {"cuda": "12.1", "cudnn": "8.9.7", "torch": "2.2.2+cu121"}
Api = Callable[..., Any]


@pytest.fixture
def tried(api: Api) -> Iterator[str]:
    """A candidate for a target whose policy asks for no canary before a blessing."""
    spec = {"targets": ["prod-a100"], "components": {"torch": "2.2.*"}, "status": "candidate"}
    api("POST", "entries", {"metadata": {"name": "tried"}, "spec": spec, "reason": "try"})
    yield "tried"
    api("DELETE", "entries/tried?reason=over")


class Walk:
    """A person at a keyboard, and the number of actions so far."""

    def __init__(self, page: Page) -> None:
        self.page, self.actions = page, 0

    def press(self, wanted: Locator, *, follows: bool = True) -> None:
        """Press a button, or follow a link; wait for the page that ``follows``."""
        reach(self.page, wanted)
        if follows:
            with self.page.expect_navigation():
                self._act("Enter")
        else:
            self._act("Enter")

    def fill(self, wanted: Locator, text: str) -> None:
        """Type into a field, in place of what it holds; a text of many lines is pasted."""
        reach(self.page, wanted)
        self.page.keyboard.press("ControlOrMeta+a")
        self.actions += 1
        if "\n" in text:
            self.page.keyboard.insert_text(text)
        else:
            self.page.keyboard.type(text)

    def choose(self, wanted: Locator, label: str) -> None:
        """Choose from a list by the beginning of a label."""
        reach(self.page, wanted)
        self.actions += 1
        self.page.keyboard.type(label)

    def go(self, key: str) -> None:
        """Go to a page with two keys."""
        self.page.keyboard.press("g")
        self._act(key)

    def _act(self, key: str) -> None:
        self.actions += 1
        self.page.keyboard.press(key)


def test_an_entry_is_blessed_after_its_canary(tried, open_page):
    page = open_page(f"entries/{tried}", signed_in=True)
    walk = Walk(page)
    walk.fill(page.get_by_label("Reason", exact=True), "its canary passed")
    walk.press(page.get_by_role("button", name="Bless", exact=True))
    expect(page.get_by_role("status").first).to_contain_text("tried is blessed since revision")
    assert walk.actions <= 3


def test_a_canary_is_submitted_from_the_change_and_watched(tried, open_page, api):
    page = open_page(f"entries/{tried}/edit?status=blessed", signed_in=True)
    walk = Walk(page)
    with page.context.expect_page() as opened:
        walk.press(page.get_by_role("button", name="Run smoke and watch"), follows=False)
    run = opened.value
    assert walk.actions <= 3
    expect(run.get_by_role("status").first).to_contain_text("Queued the run")
    expect(run.locator("main")).to_contain_text("queued")
    api("POST", f"runs/{run.url.rpartition('/')[2]}/cancel", {"reason": "over"})


def test_a_denied_stack_is_waived_for_a_week(open_page, api):
    verdict = api("POST", "gate", {"target": "prod-a100", "stack": DENIED})
    page = open_page(f"verdicts/{verdict['id']}", signed_in=True)
    walk = Walk(page)
    walk.press(page.get_by_role("link", name="Draft the waiver").first)
    expect(page.locator("#effects")).to_contain_text("This waiver allows 1 stack")
    walk.fill(page.get_by_label("Reason", exact=True), "moves to torch 2.8 on Friday")
    walk.press(page.get_by_role("button", name="Create"))
    expect(page.get_by_role("status").first).to_contain_text("Created")
    assert walk.actions <= 3
    name = page.url.rpartition("/")[2]
    try:
        assert api("POST", "gate", {"target": "prod-a100", "stack": DENIED})["allowed"]
        spec = api("GET", f"waivers/{name}")["spec"]
        assert spec["targets"] == ["prod-a100"]
        assert date.fromisoformat(spec["expires"]) - datetime.now(UTC).date() <= timedelta(days=7)
    finally:
        api("DELETE", f"waivers/{name}?reason=over")


def test_what_somebody_changed_is_found_and_reverted(tried, open_page, api):
    spec = {"targets": ["prod-a100"], "components": {"torch": "2.2.*"}, "status": "revoked"}
    api("PUT", f"entries/{tried}", {"metadata": {"name": tried}, "spec": spec, "reason": "oops"})
    page = open_page("revisions", signed_in=True)
    walk = Walk(page)
    walk.press(page.get_by_role("link", name="oops").first)
    walk.fill(page.get_by_label("Reason", exact=True), "it works")
    walk.press(page.get_by_role("button", name="Revert revision"))
    expect(page.get_by_role("status").first).to_contain_text("Reverted revision")
    assert walk.actions <= 3
    assert api("GET", f"entries/{tried}")["spec"]["status"] == "candidate"


def test_a_proposal_is_read_and_merged(tried, open_page, api):
    spec = {"targets": ["prod-a100"], "components": {"torch": "2.2.*"}, "status": "candidate"}
    named = {"apiVersion": "compatgate.dev/v1", "kind": "Entry", "spec": spec}
    edited = named | {"metadata": {"name": tried, "owner": "team-ml"}}
    made = api("POST", "proposals", {"documents": [edited], "reason": "it needs an owner"})
    page = open_page("proposals", signed_in=True)
    take_picture(page, "proposals")
    walk = Walk(page)
    walk.press(page.get_by_role("link", name=made["id"]))
    expect(page.locator("#needs")).to_contain_text("Nothing is missing.")
    take_picture(page, "proposal")
    page.emulate_media(color_scheme="light")
    assert violations(page) == []
    page.emulate_media(color_scheme="dark")
    assert dark_violations(page) == []
    walk.press(page.get_by_role("button", name="Merge", exact=True))
    expect(page.locator("#needs")).to_contain_text("The proposal is merged")
    assert walk.actions <= 3
    assert api("GET", f"entries/{tried}")["metadata"]["owner"] == "team-ml"


def test_drifted_nodes_are_listed(open_page):
    page = open_page("")
    walk = Walk(page)
    walk.go("y")
    page.wait_for_url("**/ui/drift")
    walk.press(page.get_by_role("link", name="gpu-017").first)
    expect(page.locator("#witnesses")).to_contain_text("550.54.15")
    assert walk.actions <= 3


def test_two_runs_are_compared(open_page):
    page = open_page(f"runs/{SLOWER}")
    walk = Walk(page)
    walk.choose(page.get_by_label("Baseline run"), PASSED)
    walk.press(page.get_by_role("button", name="Compare"))
    expect(page.locator("#compare")).to_contain_text("12.9 % higher")
    assert walk.actions <= 3


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


def test_a_target_is_onboarded_from_nvidia_smi(api, open_page):
    page = open_page("targets", signed_in=True)
    walk = Walk(page)
    try:
        walk.press(page.get_by_role("link", name="New target"))
        walk.fill(page.get_by_label("Paste nvidia-smi output"), SMI.read_text())
        walk.press(page.get_by_role("button", name="Read"))
        walk.fill(page.get_by_label("Name", exact=True), "onboarded")
        walk.fill(page.get_by_label("Nodes", exact=True).first, "16")
        walk.fill(page.get_by_label("Reason", exact=True), "the new rack")
        walk.press(page.get_by_role("button", name="Create"))
        expect(page.get_by_role("status")).to_contain_text("Created onboarded in revision")
        expect(page.locator("#pools")).to_contain_text("16")
        assert walk.actions <= 8
    finally:
        api("DELETE", "targets/onboarded?reason=over")


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
