"""A target from nothing, in the browser."""

from __future__ import annotations

import urllib.request
from pathlib import Path

from playwright.sync_api import expect

SMI = Path(__file__).parents[2] / "fixtures/nvidia_smi/list-and-table.txt"


def test_a_target_is_onboarded_from_nvidia_smi_in_seven_actions(site, open_page):
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
        address = f"{site.url}/api/v1/targets/onboarded?reason=over"
        header = {"Authorization": f"Bearer {site.admin}"}
        urllib.request.urlopen(urllib.request.Request(address, method="DELETE", headers=header))


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
