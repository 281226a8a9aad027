"""Decisions and verdicts, as somebody looks back at them."""

from __future__ import annotations

import re

from playwright.sync_api import expect
from ui_axe import dark_violations, violations
from ui_pictures import take_picture


def test_the_log_narrows_as_one_chooses_and_is_sent_as_an_address(open_page):
    page = open_page("decisions")
    expect(page.locator("figure[data-drawn] canvas").first).to_be_visible()
    page.get_by_role("combobox", name="Allowed").select_option("no")
    page.get_by_label("Target begins with").fill("inference-l4")
    expect(page.locator("#decisions tbody")).not_to_contain_text("prod-a100")
    expect(page).to_have_url(re.compile("target=inference-l4.*allowed=no"))


def test_a_verdict_is_read_and_asked_again(open_page):
    page = open_page("decisions?verdict=fail&target=prod-a100", signed_in=True)
    page.locator("#decisions tbody td a").first.click()
    expect(page.locator("main")).to_contain_text("CG802")
    take_picture(page, "verdict")
    page.emulate_media(color_scheme="light")
    assert violations(page) == []
    page.emulate_media(color_scheme="dark")
    assert dark_violations(page) == []
    short = page.get_by_text("/v/vd_").first.inner_text()  # Markdown has it, too
    page.set_viewport_size({"width": 390, "height": 844})
    width = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(width) == 0
    title = page.title()
    page.goto(short)
    assert page.title() == title
    page.get_by_role("link", name="Ask again").click()
    expect(page.locator("#answers")).to_contain_text("CG802")


def test_what_stands_in_the_way_is_waived_from_its_verdict(open_page, api):
    stack = {"cuda": "12.99", "torch": "2.4.1+cu121", "arch": "sm_70"}
    asked = api("POST", "gate", {"target": "prod-a100", "stack": stack})
    denying = {f["rule"] for f in asked["findings"] if f["outcome"] in ("fail", "unknown")}
    assert {f["outcome"] for f in asked["findings"]} > {"fail", "unknown"}
    page = open_page(f"verdicts/{asked['id']}", signed_in=True)
    page.get_by_role("link", name="Draft the waiver").click()
    expect(page.locator("main").get_by_label("Rules")).to_have_value(", ".join(sorted(denying)))
    expect(page.locator("main").get_by_label("Targets")).to_have_value("prod-a100")
