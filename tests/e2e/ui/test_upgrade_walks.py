"""Roll a driver, and stop an upgrade: walks as those of ``test_walks.py``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from urllib.error import HTTPError

import pytest
from playwright.sync_api import expect
from ui_axe import violations
from ui_walk import Walk

OLD, NEW = "535.183.01", "580.95.05"
Api = Callable[..., Any]


@pytest.fixture
def racks(api: Api) -> Iterator[str]:
    """A target with two racks of three nodes each, and no upgrade."""
    pool = {"name": "a100", "gpu": "A100-SXM4-80GB", "driver": OLD, "count": 6}
    labels = {
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
        "nvidia.com/cuda.driver-version.full": OLD,
    }
    nodes = [
        {
            "name": f"rolled-{number}",
            "target": "racks",
            "labels": labels | {"topology.kubernetes.io/rack": f"r{number % 2}"},
        }
        for number in range(6)
    ]
    spec = {"pools": [pool], "policy": {"mode": "enforce"}}
    api("POST", "targets", {"metadata": {"name": "racks"}, "spec": spec, "reason": "try"})
    api("POST", "nodes", {"cluster": "racks", "nodes": nodes})
    yield "racks"
    for one in api("GET", "upgrades?target=racks")["items"]:
        with suppress(HTTPError):  # it has ended
            api("POST", f"upgrades/{one['name']}/roll-back?reason=over")
    for node in nodes:
        api("DELETE", f"nodes/{node['name']}?cluster=racks&reason=over")
    api("DELETE", "targets/racks?reason=over")


def test_a_driver_is_rolled_from_its_plan(racks, open_page):
    page = open_page(f"targets/{racks}/plan?driver={NEW}", signed_in=True)
    walk = Walk(page)
    walk.press(page.get_by_role("link", name="Create an upgrade"))
    walk.fill(page.get_by_label("Reason", exact=True), "fixes Xid 119")
    walk.press(page.get_by_role("button", name="Propose"))
    walk.see(page.get_by_role("status").first, "No wave has started")
    walk.see(page.locator("#live"), "rack r0 0/3")
    expect(page.get_by_role("button", name="Start wave 1")).to_be_visible()


def test_an_upgrade_is_stopped_and_whoever_watches_sees_it(racks, open_page, api):
    body = {"name": "racks-580", "target": racks, "driver": NEW, "reason": "fixes Xid 119"}
    api("POST", "upgrades", body)
    watching = open_page("upgrades/racks-580", signed_in=True)
    start = watching.get_by_role("button", name="Start wave 1")
    start.focus()
    page = open_page("upgrades/racks-580", signed_in=True)
    walk = Walk(page)
    reason = page.locator("#stop").get_by_label("Reason", exact=True).first
    walk.fill(reason, "jobs hang on rack r0")
    walk.press(page.get_by_role("button", name="Stop", exact=True))
    walk.see(page.get_by_role("status").first, "Every wave waits")
    assert walk.actions == 2
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    expect(watching.locator("#now")).to_contain_text("jobs hang on rack r0")
    expect(start).to_have_count(0)
    assert violations(watching) == []


def test_the_entries_that_a_driver_needs_are_proposed_with_one_click(open_page, api):
    page = open_page("what-if?target=prod-a100&driver=580", signed_in=True)
    expect(page.locator(".tile .tone-fail")).to_have_count(0)
    walk = Walk(page, actions=1)
    walk.press(page.get_by_role("button", name="Propose these entries"))
    walk.see(page.get_by_role("status").first, "Proposed")
    made = page.url.rpartition("/")[2]
    api("POST", f"proposals/{made}/close", {"comment": "over"})


def test_a_proposed_upgrade_is_withdrawn_and_reinstalls_nothing(racks, open_page, api):
    api("POST", "upgrades", {"name": "early", "target": racks, "driver": NEW, "reason": "try"})
    page = open_page("upgrades/early", signed_in=True)
    walk = Walk(page)
    walk.press(page.locator("summary", has_text="Withdraw"), follows=False)
    walk.fill(page.get_by_label("Reason", exact=True).nth(1), "the racks move first")
    walk.press(page.get_by_role("button", name="Withdraw"))
    walk.see(page.get_by_role("status").first, "Withdrew early")
    expect(page.locator("#now")).to_contain_text("nothing to reinstall")
    expect(page.locator("main")).not_to_contain_text("former driver")
