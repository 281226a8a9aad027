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
    expect(page.locator("#problem")).to_have_text("The token is unknown.")


@pytest.mark.parametrize(
    "place", ["https://evil.example/", "//evil.example", "/\\evil", "javascript:alert(1)"]
)
def test_nobody_is_led_elsewhere(open_page, site, place):
    page = open_page(f"sign-in?next={place}")
    page.get_by_label("Token").fill(site.admin)
    page.get_by_role("button", name="Sign in").click()
    expect(page).to_have_url(site.at(""))


def test_the_theme_stays(open_page):
    page = open_page("")
    page.locator(".theme button").click()
    assert page.locator("html").get_attribute("data-theme") == "dark"
    page.reload()
    assert page.locator("html").get_attribute("data-theme") == "dark"


def test_what_was_typed_outlives_the_session(open_page, site):
    page = open_page("new-waiver?rules=CG802&targets=prod-a100", signed_in=True)
    page.context.clear_cookies()
    fields = page.locator("#fields")
    fields.get_by_label("Versions").fill("torch ~=2.3.0")
    expect(page.locator("#checked").get_by_role("alert")).to_be_visible()  # checked while typing
    fields.get_by_label("Rules").fill("CG9")  # no such rule
    page.get_by_label("Reason", exact=True).fill("until Friday")
    expect(fields.get_by_label("Versions")).to_have_value("torch ~=2.3.0")
    page.get_by_role("button", name="Create").click()
    expect(page.locator("main")).to_contain_text("This page keeps your input.")
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="Sign in, in a new tab").click()
    opened.value.get_by_label("Token").fill(site.admin)
    opened.value.get_by_role("button", name="Sign in").click()
    opened.value.wait_for_url(site.at(""))
    page.get_by_role("button", name="Send again").click()
    expect(page.locator("main")).to_contain_text("You are signed in as")
    page.get_by_role("button", name="Send again").click()
    expect(page.get_by_role("alert").first).to_contain_text("spec.rules")
    expect(page.locator("#fields").get_by_label("Versions")).to_have_value("torch ~=2.3.0")
    expect(page.locator("#change [name=reason]")).to_have_value("until Friday")
