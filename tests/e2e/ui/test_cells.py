"""The table of what runs where, as somebody uses it."""

from __future__ import annotations

from playwright.sync_api import expect


def test_one_filters_goes_by_arrows_and_opens_a_cell(open_page):
    page = open_page("matrix")
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


def test_it_turns_to_other_axes(open_page):
    page = open_page("matrix")
    page.get_by_label("Rows").select_option("torch")
    expect(page.locator(".map tbody th").first).to_contain_text("cu")
    page.get_by_label("Columns").select_option("gpu")
    expect(page.locator(".map thead")).to_contain_text("A100-SXM4-80GB")


def test_what_does_not_exist_says_what_to_do(open_page):
    page = open_page("matrix?q=driver<1")
    assert "No matches" in page.locator("main").inner_text()
