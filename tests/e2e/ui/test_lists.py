"""Lists that are narrowed and ordered while an earlier answer is still on its way."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, Route, expect

LISTS = (
    ("nodes", "Name", "gpu-01", "Driver"),
    ("targets", "Name", "prod", "Mode"),
    ("entries", "Name", "torch", "Status"),
)
"""Address, a filter, what is typed into it, and a column."""


def _hold(page: Page, part: str) -> list[Route]:
    """Keep answers back whose address has a part, until the test lets them go."""
    held: list[Route] = []

    def keep(route: Route) -> None:
        if part in urlsplit(route.request.url).query and not held:
            held.append(route)
        else:
            route.continue_()

    page.route("**/ui/*?*", keep)
    return held


def _asked(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


@pytest.mark.parametrize(("path", "field", "typed", "column"), LISTS)
def test_a_filter_typed_while_an_order_loads_keeps_it(open_page, path, field, typed, column):
    page = open_page(path)
    held = _hold(page, "sort=")
    page.locator(".table th").get_by_role("link", name=column, exact=True).click()
    page.locator("#filters").get_by_label(field).fill(typed)
    expect(page.locator("th[aria-sort=ascending]")).to_have_text(column)
    for route in held:
        route.continue_()  # the answer to an earlier question: it is left alone
    page.wait_for_url(f"**/{path}?*{typed}*")
    assert _asked(page)["sort"] == [column.lower()]
    expect(page.locator("th[aria-sort=ascending]")).to_have_text(column)
    for name in page.locator("tbody tr td:first-child").all_inner_texts():
        assert typed in name


@pytest.mark.parametrize(("path", "field", "typed", "column"), LISTS)
def test_an_order_asked_for_while_a_filter_loads_keeps_it(open_page, path, field, typed, column):
    page = open_page(path)
    held = _hold(page, typed)
    page.locator("#filters").get_by_label(field).fill(typed)
    expect(page.locator(".table")).to_have_attribute("aria-busy", "true")
    page.locator(".table th").get_by_role("link", name=column, exact=True).click()
    expect(page.locator("th[aria-sort=ascending]")).to_have_text(column)
    for route in held:
        route.continue_()
    assert _asked(page)["sort"] == [column.lower()]
    for name in page.locator("tbody tr td:first-child").all_inner_texts():
        assert typed in name


def _edges(page: Page, one: str) -> dict[str, float]:
    return page.locator(one).first.evaluate("(e) => e.getBoundingClientRect().toJSON()")


def test_heads_of_lists_stay_in_sight_and_what_decides_does_on_a_phone(open_page):
    page = open_page("nodes")
    page.evaluate("scrollTo(0, 900)")
    bar, head = _edges(page, "header.top"), _edges(page, ".data thead th")
    assert abs(head["top"] - bar["bottom"]) < 4
    phone = open_page("decisions", viewport={"width": 390, "height": 844})
    assert phone.evaluate("document.documentElement.scrollWidth") == 390
    box = phone.locator(".scroll:has(> .list)")
    box.evaluate("(e) => { e.scrollTo(300, 200); }")
    room, head = _edges(phone, ".scroll:has(> .list)"), _edges(phone, ".data.list thead th")
    assert abs(head["top"] - room["top"]) < 3
    first = _edges(phone, ".data.list tbody td")
    assert abs(first["left"] - room["left"]) < 3
    expect(phone.locator(".data.list tbody td .narrow .badge").first).to_be_visible()


def test_columns_are_chosen_with_the_keyboard_alone_and_stay_in_the_address(open_page):
    page = open_page("entries?status=blessed")
    page.locator(".pop summary", has_text="Columns").focus()
    page.keyboard.press("Enter")
    page.get_by_role("link", name="Hide Targets").press("Enter")
    expect(page.locator(".list th", has_text="Targets")).to_have_count(0)
    assert _asked(page)["status"] == ["blessed"]
    page.locator(".pop summary", has_text="Columns").click()
    every = page.get_by_role("link", name="Show all")
    expect(every).to_be_visible()
    page.keyboard.press("Escape")
    expect(every).to_be_hidden()


def test_times_are_in_the_zone_of_the_browser_once_it_was_chosen(open_page):
    page = open_page("preferences", timezone_id="Asia/Kathmandu")
    page.get_by_label("time zone of this browser").check()
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#look time")).to_contain_text("+05:45")
