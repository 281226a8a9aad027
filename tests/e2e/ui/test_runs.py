"""Canary runs and baselines, as somebody uses them."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect
from ui_runs import HOSTILE, PASSED, SICK, SLOWER, Runs
from ui_site import workloads_of

from compatgate.service.app import open_rooms


@pytest.fixture(scope="module")
def runs(site) -> Iterator[Runs]:
    """A worker's side of the site."""
    rooms = open_rooms(site.database, overlays=[])
    yield Runs(rooms, workloads_of(site.database))
    rooms.close()


def test_a_run_is_submitted_and_cancelled(open_page):
    page = open_page("runs", signed_in=True)
    page.get_by_role("link", name="Submit a run").click()
    page.get_by_label("Suite").select_option("conv-only")
    page.locator("select[name=target]").select_option("prod-a100")
    page.get_by_label("Stack under test").fill("cuda 12.4")
    page.get_by_role("button", name="Submit").click()
    expect(page.get_by_role("alert").first).to_contain_text("is not name=version")
    expect(page.get_by_label("Stack under test")).to_have_value("cuda 12.4")
    page.get_by_label("Stack under test").fill("cuda=12.4")
    page.get_by_role("button", name="Submit").click()
    expect(page.get_by_text("Queued the run.")).to_be_visible()
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#state .badge").first).to_contain_text("cancelled")
    expect(page.get_by_role("button", name="Run again")).to_be_visible()


def test_a_run_is_watched_until_it_ends(open_page, runs):
    lease = runs.begin()
    queue = runs.rooms.runs.queue
    queue.write(lease, "conv-forward-0", b"warming up\n")
    page = open_page(f"runs/{lease.run.id}", signed_in=True)
    log = page.locator(".log")
    expect(log).to_contain_text("warming up")
    expect(page.get_by_label("Progress of the run")).to_have_attribute("value", "0.6")
    queue.say(lease, "conv-forward-0: 36 of 40 repetitions", 0.9)
    queue.write(lease, "conv-forward-0", b"half \xe2\x82")
    queue.write(lease, "conv-forward-0", b"\xac way\n" + HOSTILE)
    expect(log).to_contain_text("way")
    expect(log).to_contain_text('<img src=x onerror="window.hacked=1">')
    expect(page.locator("#state")).to_contain_text("36 of 40 repetitions")
    assert log.inner_text().count("warming up") == 1
    queue.finish(lease, "inconclusive", "the test ends it", None)
    expect(page.locator("#state")).to_contain_text("the test ends it")
    expect(page.get_by_role("button", name="Run again")).to_be_visible()
    assert page.evaluate("window.hacked") is None


def test_the_list_follows_what_is_under_way_and_keeps_the_focus(open_page, runs):
    lease = runs.begin()
    page = open_page(f"runs?host={lease.host}")
    link = page.get_by_role("link", name=lease.run.id)
    link.focus()
    runs.rooms.runs.queue.finish(lease, "inconclusive", "the test ends it", None)
    row = page.locator("tr", has=link)
    expect(row).to_contain_text("the test ends it")
    expect(link).to_be_focused()


def test_filters_narrow_the_list_and_stay_in_the_address(open_page):
    page = open_page("runs?state=passed")
    page.get_by_role("combobox", name="State").select_option("failed")
    expect(page.get_by_role("link", name=SLOWER)).to_be_visible()
    expect(page.get_by_role("link", name=PASSED)).to_have_count(0)
    assert "state=failed" in page.url


def test_points_of_charts_lead_to_their_runs_and_values(open_page):
    page = open_page(f"runs/{SLOWER}")
    expect(page.locator(".chart canvas")).to_have_count(4)
    values = page.locator("figure .u-over").first
    values.click(position={"x": 3, "y": 40})
    expect(page.locator("tr:target")).to_be_visible()
    assert urlsplit(page.url).fragment == "m-conv-forward-0-step-time-1"
    trend = page.locator("figure.trend .u-over").first
    trend.click(position={"x": 3, "y": 40})
    page.wait_for_url(lambda url: f"runs/{SLOWER}" not in url)
    expect(page.locator(".crumbs")).to_contain_text("run_")
    expect(page.locator("h1")).to_contain_text("conv-only")


def test_a_run_is_held_against_another(open_page):
    page = open_page(f"runs/{SLOWER}")
    page.get_by_label("Baseline run").select_option(PASSED)
    page.get_by_role("button", name="Compare").click()
    table = page.locator("#compare")
    expect(table).to_contain_text("regression")
    expect(table).to_contain_text("12.9 % higher")
    page.get_by_role("link", name="Swap the runs").click()
    expect(table).to_contain_text("improvement")


def test_a_hostile_log_runs_nothing(open_page):
    page = open_page(f"runs/{SICK}")
    expect(page.locator(".log")).to_contain_text("<script>window.hacked=1</script>")
    assert page.evaluate("window.hacked") is None


def test_a_baseline_is_looked_at_and_approved(open_page):
    page = open_page("baselines", signed_in=True)
    page.get_by_role("link", name="hash-time of hello-cpu", exact=True).click()
    expect(page.locator(".chart canvas")).to_have_count(1)
    expect(page.get_by_text("No version is approved yet")).to_be_visible()
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_role("status")).to_contain_text("runs are judged against version 1")
    expect(page.locator("main .badge").first).to_contain_text("approved")
