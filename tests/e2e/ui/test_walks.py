"""The walks of the acceptance list, by keyboard alone: three actions, five seconds of waiting.

A target is onboarded from nothing in eight actions. A driver is rolled, and an upgrade stopped, in
``test_upgrade_walks.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from playwright.sync_api import expect
from ui_axe import dark_violations, violations
from ui_pictures import take_picture
from ui_runs import DRIVER, GPU, PASSED, SLOWER, Runs
from ui_site import workloads_of
from ui_walk import Walk

from compatgate.service.app import open_rooms

SMI = Path(__file__).parents[2] / "fixtures/nvidia_smi/list-and-table.txt"
DENIED = {"cuda": "12.1", "cudnn": "8.9.7", "torch": "2.2.2+cu121"}
Api = Callable[..., Any]


@pytest.fixture(scope="module")
def runs(site) -> Iterator[Runs]:
    """A worker's side of the site."""
    rooms = open_rooms(site.database, overlays=[])
    yield Runs(rooms, workloads_of(site.database))
    rooms.close()


@pytest.fixture
def tried(api: Api) -> Iterator[str]:
    """A candidate for a target whose policy asks for no canary before a blessing."""
    spec = {"targets": ["prod-a100"], "components": {"torch": "2.2.*"}, "status": "candidate"}
    api("POST", "entries", {"metadata": {"name": "tried"}, "spec": spec, "reason": "try"})
    yield "tried"
    api("DELETE", "entries/tried?reason=over")


@pytest.fixture
def measured(api: Api, runs: Runs) -> Iterator[str]:
    """A candidate whose canary has passed, for a target whose policy asks for it."""
    canary = {"require": True, "suites": ["conv-only"], "acceptDevelopment": True}
    pool = {"name": "a100", "gpu": GPU, "driver": DRIVER, "count": 2}
    spec = {"pools": [pool], "policy": {"mode": "enforce", "canary": canary}}
    api("POST", "targets", {"metadata": {"name": "lab"}, "spec": spec, "reason": "try"})
    spec = {"targets": ["lab"], "components": {"torch": "2.4.0"}, "status": "candidate"}
    api("POST", "entries", {"metadata": {"name": "measured"}, "spec": spec, "reason": "try"})
    runs.ran_alone(20, 7.96, torch="2.4.0+cu124")
    for _ in range(100):  # until the server has read the run
        if api("GET", "entries/measured").get("promotion", {}).get("state") == "ready":
            break
        sleep(0.1)
    yield "measured"
    api("DELETE", "entries/measured?reason=over")
    api("DELETE", "targets/lab?reason=over")


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


def test_a_question_in_words_is_one_entry_of_the_palette(open_page):
    page = open_page("entries")
    walk = Walk(page)
    walk.ask("torch 2.7 cu128 @ prod-a100")
    walk.see(page.locator("#found"), "torch=2.7.1+cu128")
    walk.see(page.locator("#found"), "Denied")
    assert walk.actions == 1


def test_an_entry_is_blessed_after_its_canary(measured, open_page, api):
    page = open_page(f"entries/{measured}", signed_in=True)
    walk = Walk(page)
    walk.see(page.locator("main"), "Every suite has passed")
    walk.fill(page.get_by_label("Reason", exact=True), "its canary passed")
    walk.press(page.get_by_role("button", name="Bless", exact=True))
    walk.see(page.get_by_role("status").first, "measured is blessed since revision")
    assert api("GET", f"entries/{measured}")["spec"]["status"] == "blessed"


def test_a_canary_is_submitted_from_the_change_and_watched(tried, open_page, api):
    page = open_page(f"entries/{tried}/edit?status=blessed", signed_in=True)
    walk = Walk(page)
    with page.context.expect_page() as opened:
        walk.press(page.get_by_role("button", name="Run smoke and watch"), follows=False)
    run = opened.value
    expect(run.get_by_role("status").first).to_contain_text("Queued the run")
    expect(run.locator("main")).to_contain_text("queued")
    api("POST", f"runs/{run.url.rpartition('/')[2]}/cancel", {"reason": "over"})


def test_a_denied_stack_is_waived_for_a_week(open_page, api):
    verdict = api("POST", "gate", {"target": "prod-a100", "stack": DENIED})
    page = open_page(f"verdicts/{verdict['id']}", signed_in=True)
    walk = Walk(page)
    walk.press(page.get_by_role("link", name="Draft the waiver").first)
    walk.see(page.locator("#effects"), "This waiver allows 1 stack")
    walk.fill(page.get_by_label("Reason", exact=True), "moves to torch 2.8 on Friday")
    walk.press(page.get_by_role("button", name="Create"))
    walk.see(page.get_by_role("status").first, "Created")
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


def test_drifted_nodes_are_listed(open_page):
    page = open_page("")
    walk = Walk(page)
    walk.go("y")
    walk.press(page.get_by_role("link", name="gpu-017").first)
    walk.see(page.locator("#witnesses"), "550.54.15")
    walk.see(page.locator("main"), "ago")  # since when
    assert walk.actions == 2


def test_two_runs_are_compared(open_page):
    page = open_page(f"runs/{SLOWER}")
    walk = Walk(page)
    walk.choose(page.get_by_label("Baseline run"), PASSED)
    walk.press(page.get_by_role("button", name="Compare"))
    walk.see(page.locator("#compare"), "12.9 % higher")


def test_a_run_is_followed_live(open_page, runs):
    lease = runs.begin()
    queue = runs.rooms.runs.queue
    queue.write(lease, "conv-forward-0", b"warming up\n")
    page = open_page("runs", signed_in=True)
    walk = Walk(page)
    try:
        walk.press(page.get_by_role("link", name=lease.run.id).first)
        walk.see(page.locator(".log"), "warming up")
        queue.write(lease, "conv-forward-0", b"half way\n")
        walk.see(page.locator(".log"), "half way")
    finally:
        queue.finish(lease, "inconclusive", "the test ends it", None)
    walk.see(page.locator("#state"), "the test ends it")
    assert walk.actions == 1


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


def test_a_token_is_made_and_revoked(open_page, api):
    page = open_page("tokens", signed_in=True)
    walk = Walk(page, actions=4)
    walk.fill(page.get_by_label("Name", exact=True), "ci-walk")
    walk.press(page.get_by_role("button", name="Create"))
    walk.see(page.get_by_role("status").first, "The token ci-walk, shown only once")
    row = page.locator("#tokens tr", has_text="ci-walk")
    walk.press(row.get_by_role("button", name="Revoke"))
    walk.see(page.locator("#ending"), "Requests with this token will be refused")
    walk.press(page.get_by_role("button", name="Revoke ci-walk"))
    walk.see(page.get_by_role("status").first, "Revoked the token ci-walk")
    expect(row).to_contain_text("revoked")
    expect(row.get_by_role("button")).to_have_count(0)


def test_what_a_driver_breaks_is_seen_from_its_target(open_page):
    page = open_page("targets/prod-a100", signed_in=True)
    walk = Walk(page, seconds=20)  # the first plan of a gate that has just started
    walk.press(page.get_by_role("link", name="Change the driver"))
    walk.fill(page.get_by_role("combobox", name="Driver"), "580")
    walk.press(page.get_by_role("button", name="Show"), follows=False)
    walk.see(page.locator("#outcome"), "is the newest of branch 580")
    walk.see(page.locator("#outcome"), "need an edited entry")
    expect(page.locator("#outcome .is-fail.finding")).to_have_count(0)  # no fact breaks
