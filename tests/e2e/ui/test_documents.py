"""Targets, entries, waivers and revisions, as somebody uses them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from playwright.sync_api import expect


def test_a_target_says_what_is_asked_there_and_draws_its_days(open_page):
    page = open_page("targets")
    page.get_by_role("combobox", name="GPU").select_option("A100-SXM4-80GB")
    expect(page.locator("#targets tbody tr")).to_have_count(1)
    page.get_by_role("link", name="prod-a100").click()
    expect(page.locator("main")).to_contain_text("Failing stacks are denied.")
    expect(page.locator(".chart canvas")).to_have_count(1)
    page.get_by_text("As a table").click()
    expect(page.locator("figure details tbody tr")).to_have_count(30)
    page.get_by_role("link", name="Show in the matrix").click()
    expect(page.locator(".map thead")).to_contain_text("prod-a100")


def test_an_entry_is_deprecated_and_the_lost_update_is_seen(open_page):
    page = open_page("entries/tf215-cu122", signed_in=True)
    late = open_page("entries/tf215-cu122", signed_in=True)
    page.locator("main").get_by_label("Reason").fill("TensorFlow 2.15 is out of support")
    page.get_by_label("Replacement").fill("torch24-cu124")
    page.get_by_role("button", name="Deprecate").click()
    expect(page.get_by_role("status")).to_contain_text("tf215-cu122 is deprecated")
    expect(page.locator(".timeline ins").first).to_contain_text("deprecated")
    late.locator("main").get_by_label("Reason").fill("it is slow")
    late.get_by_role("button", name="Revoke").click()
    expect(late.get_by_role("alert").first).to_contain_text(
        "changed the Entry 'tf215-cu122' meanwhile"
    )
    expect(late.locator("main").get_by_label("Reason")).to_have_value("it is slow")
    page.locator("main").get_by_label("Reason").fill("suite dl-core passed on staging")
    page.get_by_role("button", name="Bless").click()
    expect(page.get_by_role("status")).to_contain_text("is blessed")


def test_a_waiver_is_made_and_ended(open_page):
    page = open_page("waivers", signed_in=True)
    page.get_by_role("link", name="New waiver").click()
    page.locator("main").get_by_label("Name").fill("week-end")
    page.locator("main").get_by_label("Rules").fill("CG9")
    page.locator("main").get_by_label("Targets").fill("prod-a100")
    page.locator("main").get_by_label("Versions").fill("torch ~=2.3.0")
    page.locator("main").get_by_label("Owner").fill("team-night")
    day = (datetime.now(UTC) + timedelta(days=3)).date().isoformat()
    page.locator("main").get_by_label("Last day").fill(day)
    page.locator("main").get_by_label("Reason shown in verdicts").fill("over the week-end")
    page.get_by_label("Reason", exact=True).fill("nobody is there to mend it")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("alert").first).to_contain_text("spec.rules")
    page.locator("main").get_by_label("Rules").fill("CG802")
    page.get_by_role("button", name="Create").click()
    expect(page.locator("h1")).to_contain_text("3 d left")
    page.locator("main").get_by_label("Reason").fill("mended")
    page.get_by_role("button", name="End now").click()
    expect(page.locator("h1")).to_contain_text("ended")
    page.locator("main").get_by_label("Reason").fill("a test made it")
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("status")).to_contain_text("Deleted")


def test_two_revisions_are_compared(open_page):
    page = open_page("revisions")
    page.get_by_label("From revision").fill("1")
    page.get_by_label("to revision").fill("2")
    page.get_by_role("button", name="Compare").click()
    expect(page.locator("main")).to_contain_text("0 created, 1 changed, 0 deleted")
    expect(page.locator("del")).to_contain_text("deprecated")
