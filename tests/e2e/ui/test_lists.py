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
