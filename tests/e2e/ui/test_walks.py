"""What people change in the browser, each in at most three actions; a target from nothing in eight.

An action is a click, a key that acts, or a field that is filled.
"""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

SMI = Path(__file__).parents[2] / "fixtures/nvidia_smi/list-and-table.txt"
DENIED = {"cuda": "12.1", "cudnn": "8.9.7", "torch": "2.2.2+cu121"}
Api = Callable[..., Any]


@pytest.fixture
def api(site) -> Api:
    """Asks the gate over REST as the administrator."""

    def ask(method: str, path: str, body: object = None) -> Any:
        headers = {"Authorization": f"Bearer {site.admin}", "Content-Type": "application/json"}
        data = json.dumps(body).encode() if body else None
        request = urllib.request.Request(
            f"{site.url}/api/v1/{path}", data=data, method=method, headers=headers
        )
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    return ask


@pytest.fixture
def tried(api: Api) -> Iterator[str]:
    """A candidate for a target whose policy asks for no canary before a blessing."""
    spec = {"targets": ["prod-a100"], "components": {"torch": "2.2.*"}, "status": "candidate"}
    api("POST", "entries", {"metadata": {"name": "tried"}, "spec": spec, "reason": "try"})
    yield "tried"
    api("DELETE", "entries/tried?reason=over")


def reach(page: Page, wanted: Locator) -> None:
    """Go to a place with the key Tab alone."""
    for _ in range(150):
        page.keyboard.press("Tab")
        if wanted.evaluate("e => e === document.activeElement"):
            return
    raise AssertionError("the key Tab does not lead there")


def test_an_entry_is_blessed_by_keyboard_in_two_actions(tried, open_page):
    page = open_page(f"entries/{tried}", signed_in=True)
    reach(page, page.get_by_label("Reason", exact=True))
    page.keyboard.type("its canary passed")
    reach(page, page.get_by_role("button", name="Bless", exact=True))
    page.keyboard.press("Enter")
    expect(page.get_by_role("status").first).to_contain_text("tried is blessed since revision")


def test_a_canary_is_submitted_from_the_change_and_watched(tried, open_page, api):
    page = open_page(f"entries/{tried}/edit?status=blessed", signed_in=True)
    with page.context.expect_page() as opened:
        page.get_by_role("button", name="Run smoke and watch").click()
    run = opened.value
    expect(run.get_by_role("status").first).to_contain_text("Queued the run")
    expect(run.locator("main")).to_contain_text("queued")
    api("POST", f"runs/{run.url.rpartition('/')[2]}/cancel", {"reason": "over"})


def test_a_denied_stack_is_waived_for_a_week_in_three_actions(open_page, api):
    verdict = api("POST", "gate", {"target": "prod-a100", "stack": DENIED})
    page = open_page(f"verdicts/{verdict['id']}", signed_in=True)
    page.get_by_role("link", name="Draft the waiver").first.click()
    expect(page.locator("#effects")).to_contain_text("This waiver lets through 1 stack")
    page.get_by_label("Reason", exact=True).fill("moves to torch 2.8 on Friday")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("status").first).to_contain_text("Created")
    try:
        assert api("POST", "gate", {"target": "prod-a100", "stack": DENIED})["allowed"]
    finally:
        api("DELETE", f"waivers/{page.url.rpartition('/')[2]}?reason=over")


def test_what_somebody_changed_is_found_and_reverted_in_three_actions(tried, open_page, api):
    spec = {"targets": ["prod-a100"], "components": {"torch": "2.2.*"}, "status": "revoked"}
    api("PUT", f"entries/{tried}", {"metadata": {"name": tried}, "spec": spec, "reason": "oops"})
    page = open_page("revisions", signed_in=True)
    page.get_by_role("link", name="oops").first.click()
    page.get_by_label("Reason", exact=True).fill("it works")
    page.get_by_role("button", name="Revert revision").click()
    expect(page.get_by_role("status").first).to_contain_text("Reverted revision")
    assert api("GET", f"entries/{tried}")["spec"]["status"] == "candidate"


def test_fields_and_yaml_follow_each_other_while_one_types(open_page, violations):
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


def test_a_target_is_onboarded_from_nvidia_smi_in_seven_actions(api, open_page):
    page = open_page("targets", signed_in=True)
    try:
        page.get_by_role("link", name="New target").click()
        page.get_by_label("Paste nvidia-smi output").fill(SMI.read_text())
        page.get_by_role("button", name="Read").click()
        page.get_by_label("Name", exact=True).fill("onboarded")
        page.get_by_label("Nodes", exact=True).first.fill("16")
        page.get_by_label("Reason", exact=True).fill("the new rack")
        page.get_by_role("button", name="Create").click()
        expect(page.get_by_role("status")).to_contain_text("Created onboarded in revision")
        expect(page.locator("#pools")).to_contain_text("16")
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
