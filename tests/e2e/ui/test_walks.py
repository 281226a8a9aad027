"""Walk by keyboard alone, besides the twelve jobs: three actions, five seconds of waiting.

A target is onboarded from nothing in eight actions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect
from ui_axe import dark_violations, violations
from ui_pictures import take_picture
from ui_walk import Walk

SMI = Path(__file__).parents[2] / "fixtures/nvidia_smi/list-and-table.txt"
Api = Callable[..., Any]


@pytest.fixture
def tried(api: Api) -> Iterator[str]:
    """A candidate for a target whose policy asks for no canary before a blessing."""
    spec = {"targets": ["prod-a100"], "components": {"torch": "2.2.*"}, "status": "candidate"}
    api("POST", "entries", {"metadata": {"name": "tried"}, "spec": spec, "reason": "try"})
    yield "tried"
    api("DELETE", "entries/tried?reason=over")


def test_a_walk_counts_its_actions_and_its_waiting(open_page):
    page = open_page("")
    walk = Walk(page, actions=1, seconds=1)
    walk.ask("torch")
    with pytest.raises(AssertionError, match="more than 1 actions"):
        walk.ask("torch")
    with pytest.raises(AssertionError):
        walk.see(page.locator("main"), "what is not there")
    with pytest.raises(AssertionError, match="this waits"):
        walk.see(page.locator("main"), "")


def test_a_canary_is_submitted_from_the_change_and_watched(tried, open_page, api):
    page = open_page(f"entries/{tried}/edit?status=blessed", signed_in=True)
    walk = Walk(page)
    with page.context.expect_page() as opened:
        walk.press(page.get_by_role("button", name="Run smoke and watch"), follows=False)
    run = opened.value
    expect(run.get_by_role("status").first).to_contain_text("Queued the run")
    expect(run.locator("main")).to_contain_text("queued")
    api("POST", f"runs/{run.url.rpartition('/')[2]}/cancel", {"reason": "over"})


def test_what_somebody_changed_is_found_and_reverted(tried, open_page, api):
    spec = {"targets": ["prod-a100"], "components": {"torch": "2.2.*"}, "status": "revoked"}
    api("PUT", f"entries/{tried}", {"metadata": {"name": tried}, "spec": spec, "reason": "oops"})
    page = open_page("revisions", signed_in=True)
    walk = Walk(page)
    walk.press(page.get_by_role("link", name="oops").first)
    walk.fill(page.get_by_label("Reason", exact=True), "it works")
    walk.press(page.get_by_role("button", name="Revert revision"))
    walk.see(page.get_by_role("status").first, "Reverted revision")
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
    walk.see(page.locator("#needs"), "Nothing is missing.")
    take_picture(page, "proposal")
    page.emulate_media(color_scheme="light")
    assert violations(page) == []
    page.emulate_media(color_scheme="dark")
    assert dark_violations(page) == []
    walk.press(page.get_by_role("button", name="Merge", exact=True))
    walk.see(page.locator("#needs"), "The proposal is merged")
    assert api("GET", f"entries/{tried}")["metadata"]["owner"] == "team-ml"


def test_a_target_is_onboarded_from_nvidia_smi(api, open_page):
    page = open_page("targets", signed_in=True)
    walk = Walk(page, actions=8)
    try:
        walk.press(page.get_by_role("link", name="New target"))
        walk.fill(page.get_by_label("Paste nvidia-smi output"), SMI.read_text())
        walk.press(page.get_by_role("button", name="Read"))
        walk.fill(page.get_by_label("Name", exact=True), "onboarded")
        walk.fill(page.get_by_label("Nodes", exact=True).first, "16")
        walk.fill(page.get_by_label("Reason", exact=True), "the new rack")
        walk.press(page.get_by_role("button", name="Create"))
        walk.see(page.get_by_role("status"), "Created onboarded in revision")
        walk.see(page.locator("#pools"), "16")
    finally:
        api("DELETE", "targets/onboarded?reason=over")


def test_the_entries_that_a_driver_needs_are_proposed_with_one_click(open_page, api):
    page = open_page("what-if?target=prod-a100&driver=580", signed_in=True)
    expect(page.locator(".tile .tone-fail")).to_have_count(0)
    walk = Walk(page, actions=1)
    walk.press(page.get_by_role("button", name="Propose these entries"))
    walk.see(page.get_by_role("status").first, "Proposed")
    made = page.url.rpartition("/")[2]
    api("POST", f"proposals/{made}/close", {"comment": "over"})
