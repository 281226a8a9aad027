"""The table of what runs where, as somebody uses it."""

from __future__ import annotations

from playwright.sync_api import expect


def test_one_filters_goes_by_arrows_and_opens_a_cell(open_page):
    page = open_page("matrix/cells")
    page.get_by_role("searchbox", name="Filter").fill("torch 2.4.1 blessed")
    expect(page.locator(".map tbody tr").first).to_contain_text("torch24")
    expect(page.locator(".map tbody")).not_to_contain_text("tf215")
    page.locator(".map td a").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.closest('td').cellIndex") == 2
    page.keyboard.press("Enter")
    expect(page.locator("#cell")).to_contain_text("revision")
    page.get_by_role("searchbox", name="Filter").fill("torch 2.4.1 zebra")
    expect(page.locator("#map")).to_contain_text("zebra")
    expect(page.locator("#cell")).to_have_count(0)
