"""Everything by keyboard: the focus is seen, goes where one looks, and is never lost."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from compatgate.web.page import NAVIGATION


def test_the_first_key_skips_the_menu_and_shows_where_one_is(open_page):
    page = open_page("targets")
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to content")
    expect(skip).to_be_focused()
    assert skip.evaluate("e => getComputedStyle(e).outlineStyle") == "solid"
    assert skip.bounding_box()["y"] >= 0
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()


def test_two_keys_lead_to_each_page(open_page, site):
    page = open_page("keys", signed_in=True)
    for item in (item for group in NAVIGATION for item in group.items):
        page.keyboard.press("g")
        page.keyboard.press(item.key)
        page.wait_for_url(site.at(item.path), wait_until="domcontentloaded")


def test_leaving_the_results_of_a_search_leads_back_to_the_field(open_page):
    page = open_page("")
    page.keyboard.press("/")
    page.keyboard.type("torch")
    page.locator("#found a").first.wait_for()
    page.keyboard.press("ArrowDown")
    expect(page.locator("#found a").first).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#find")).to_be_focused()
    expect(page.locator("#found a")).to_have_count(0)


@pytest.mark.parametrize("path", ["entries", "runs"])
def test_a_column_that_was_sorted_by_keeps_the_focus(open_page, path):
    page = open_page(path)
    for order in ("ascending", "descending"):
        page.locator("th a").nth(1).press("Enter")
        head = page.locator(f'th[aria-sort="{order}"] a')
        expect(head).to_be_focused()


def test_a_list_that_is_replaced_leaves_the_focus_in_a_field_that_somebody_went_to(open_page):
    page = open_page("nodes")
    page.evaluate(
        """() => {
          addEventListener("htmx:afterSwap", () => document.querySelector("[name=search]").focus());
          window.settled = new Promise(done => addEventListener("htmx:afterSettle", () =>
            requestAnimationFrame(done)));
        }"""
    )
    page.locator("#nodes th").get_by_role("link", name="Driver", exact=True).press("Enter")
    page.evaluate("window.settled")
    expect(page.locator('th[aria-sort="ascending"]')).to_have_text("Driver")
    expect(page.get_by_label("Name")).to_be_focused()


def test_a_fix_that_was_applied_leads_to_its_answer(open_page):
    page = open_page(
        "ask?target=inference-l4&stack=cuda%3D12.4,cudnn%3D8.9.7,torch%3D2.4.1%2Bcu124"
    )
    page.locator("a.button.small").first.press("Enter")
    expect(page.locator("#ask :focus, #ask:focus")).to_have_count(1)


def test_back_and_forward_show_what_was_filtered(open_page):
    page = open_page("entries")
    rows = page.locator("table.data tbody tr")
    everything = rows.count()
    page.get_by_label("Name").fill("torch29")
    expect(rows).to_have_count(1)
    page.go_back()
    expect(rows).to_have_count(everything)
    page.go_forward()
    expect(rows).to_have_count(1)
