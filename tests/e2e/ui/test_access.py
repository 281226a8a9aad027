"""Signing in and out, in a browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect


def test_a_token_is_pasted_once(open_page, site):
    page = open_page("sign-in?next=/ui/matrix")
    page.get_by_label("Token").fill(site.admin)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/ui/matrix")
    expect(page.locator(".who")).to_contain_text("admin")
    page.get_by_role("button", name="Sign out").click()
    expect(page.locator(".who")).to_contain_text("Sign in")


def test_a_wrong_token_is_refused_and_says_so(open_page):
    page = open_page("sign-in")
    page.get_by_label("Token").fill("cg_wrong")
    page.get_by_role("button", name="Sign in").click()
    assert page.get_by_role("alert").first.inner_text() == "The token is unknown."


@pytest.mark.parametrize(
    "place", ["https://evil.example/", "//evil.example", "/\\evil", "javascript:alert(1)"]
)
def test_nobody_is_led_elsewhere(open_page, site, place):
    page = open_page(f"sign-in?next={place}")
    page.get_by_label("Token").fill(site.admin)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_load_state()
    assert page.url == site.at("")


def test_the_theme_stays(open_page):
    page = open_page("")
    page.locator(".theme button").click()
    assert page.locator("html").get_attribute("data-theme") == "dark"
    page.reload()
    assert page.locator("html").get_attribute("data-theme") == "dark"
