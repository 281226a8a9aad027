"""Nodes and drift, as somebody uses them who is told that one pool behaves differently."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import expect


def test_the_drifted_node(open_page):
    """One pool of 512 nodes reports another driver: which, since when, what no longer holds."""
    page = open_page("attention")
    drift = "3 of 512 nodes report driver 550.54.15 instead of 535.183.01"
    expect(page.locator("#attention")).to_contain_text(drift)
    page.keyboard.press("g")
    page.keyboard.press("y")
    page.wait_for_url("**/ui/drift")
    said = "3 of 512 nodes of prod-a100 report driver 550.54.15 instead of 535.183.01"
    group = page.locator("article", has_text=said)
    expect(group).to_contain_text("5 h ago")
    expect(group).to_contain_text("breaks 3 of 3 entries")
    for name in ("gpu-017", "gpu-203", "gpu-380"):
        expect(group.get_by_role("link", name=name)).to_be_visible()

    group.get_by_role("link", name="gpu-017").click()
    witnesses = page.locator("#witnesses")
    driver = witnesses.get_by_role("row", name="Driver")
    expect(driver.get_by_role("cell").first).to_contain_text("550.54.15 ✓ decides")
    expect(driver.get_by_role("cell").nth(1)).to_contain_text("535.183.01 ! differs")

    page.get_by_role("link", name="What if prod-a100 had 550.54.15?").click()
    expect(page.locator(".answer")).to_contain_text(
        "no vendor fact breaks; 4 stacks need an edited"
    )
    expect(page.locator("#what-if-prod-a100")).to_contain_text("torch24-cu124")
    page.go_back()
    page.get_by_role("link", name="Drift of prod-a100").click()
    page.get_by_role("link", name=said).click()
    expect(page.locator("#nodes tbody tr")).to_have_count(3)


def test_nodes_are_found_as_one_types_and_kept_as_a_file(open_page):
    page = open_page("nodes")
    expect(page.locator("#nodes tbody tr")).to_have_count(50)
    page.locator("main").get_by_label("Name").press_sequentially("gpu-01")
    expect(page.locator("#nodes tbody tr")).to_have_count(10)
    page.get_by_label("Sources disagree").select_option("yes")
    expect(page.locator("#nodes tbody tr")).to_have_count(1)
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    lines = Path(download.value.path()).read_text().splitlines()
    assert [line.partition(",")[0] for line in lines] == ["Node", "gpu-017"]


def test_the_order_outlives_a_filter_and_a_filter_the_order(open_page):
    page = open_page("nodes")
    page.locator("#nodes th").get_by_role("link", name="Driver", exact=True).click()
    page.locator("main").get_by_label("Name").press_sequentially("gpu-01")
    expect(page.locator("#nodes tbody tr")).to_have_count(10)
    expect(page.locator("th[aria-sort=ascending]")).to_have_text("Driver")
    expect(page).to_have_url(re.compile(r"search=gpu-01"))
    expect(page).to_have_url(re.compile(r"sort=driver"))
    page.locator("th[aria-sort=ascending] a").click()
    expect(page.locator("th[aria-sort=descending]")).to_have_text("Driver")
    expect(page.locator("#nodes tbody tr")).to_have_count(10)
    page.get_by_label("Sources disagree").select_option("yes")
    expect(page.locator("#nodes tbody tr")).to_have_count(1)
    expect(page).to_have_url(re.compile(r"sort=-driver"))  # once the list has been replaced
    expect(page).to_have_url(re.compile(r"search=gpu-01"))


def test_slices_and_what_was_asked_for_are_told(open_page):
    page = open_page("nodes/h100-01")
    expect(page.locator("#gpus tbody")).to_contain_text("1g.10gb")
    expect(page.locator("#gpus")).to_contain_text("all-1g.10gb")


def test_a_stale_node_is_removed_and_says_so(open_page):
    page = open_page("nodes?stale=yes", signed_in=True)
    page.get_by_role("link", name="l4-07").click()
    expect(page.locator("main")).to_contain_text("Last seen")
    page.locator("main").get_by_label("Reason").fill("returned to the vendor")
    page.get_by_role("button", name="Remove l4-07").click()
    expect(page.get_by_role("status")).to_contain_text("Removed l4-07 of serving")
