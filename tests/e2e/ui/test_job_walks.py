"""Walk the first two jobs: one question, one click; wide and narrow, light and dark, no scripts."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect
from ui_axe import dark_violations, violations
from ui_walk import Walk

LOOKS = [
    {"viewport": {"width": 1440, "height": 900}},
    {"viewport": {"width": 390, "height": 844}},
    {"viewport": {"width": 1440, "height": 900}, "color_scheme": "dark"},
]
BLESSED = "blessed as torch28-cu128, if its cuDNN and NCCL are the wheel's"


def test_job_1_does_torch_2_8_run_on_our_h100s_by_keyboard(open_page):
    """The palette answers while one types: two actions, and no page is left."""
    page = open_page("")
    walk = Walk(page, actions=2)
    walk.ask("does torch 2.8 run on H100?")
    walk.see(page.locator("#found"), re.compile(r"Runs on \d+ of \d+ pools with H100"))
    walk.see(page.locator("#found"), BLESSED)


@pytest.mark.parametrize("look", LOOKS, ids=["wide", "narrow", "dark"])
def test_job_1_one_question_one_click(open_page, look):
    page = open_page("ask", **look)
    page.get_by_label("Stack", exact=True).fill("torch 2.8 @ H100")
    page.get_by_role("button", name="Ask", exact=True).click()
    answer = page.locator("#answers .answer")
    expect(answer).to_contain_text(BLESSED)
    button = page.get_by_role("button", name="Ask", exact=True).bounding_box()
    if look["viewport"]["width"] < 760:  # the answer follows the button
        assert 0 < answer.bounding_box()["y"] - button["y"] < 120
    assert violations(page) == []


@pytest.mark.parametrize("look", LOOKS, ids=["wide", "narrow", "dark"])
def test_job_2_what_runs_on_this_target_is_on_the_first_page(open_page, look):
    """No question: the column of the target. One click: the reason of a cell."""
    page = open_page("?every=yes", **look)
    cell = page.get_by_role("link", name="PyTorch 2.8, staging-h100: works, with a note")
    cell.click()
    expect(page.locator("#cell")).to_contain_text(BLESSED)
    assert violations(page) == []


def test_jobs_1_and_2_without_scripts(open_page):
    page = open_page("?q=torch+2.8&columns=gpu&every=yes", java_script_enabled=False)
    expect(page.locator("#summary")).to_contain_text(re.compile(r"PyTorch 2.8 runs on \d+ of"))
    page.get_by_role("link", name="PyTorch 2.8, H100-SXM5-80GB: works, with a note").click()
    expect(page.locator("#cell")).to_contain_text(BLESSED)


def test_the_menu_stays_in_sight_and_has_at_most_twelve_links(open_page):
    page = open_page("facts/gpus")
    links = page.locator("nav.side a:visible")
    assert links.count() <= 12
    page.mouse.wheel(0, 4000)
    expect(links.first).to_be_in_viewport()


def test_the_dark_start_page_has_enough_contrast(open_page):
    page = open_page("", color_scheme="dark")
    expect(page.locator("#summary")).to_be_visible()
    assert dark_violations(page) == [] or violations(page) == []
