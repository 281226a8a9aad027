"""An answer stands beside its own question only, and what went wrong is said where answers are."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, Route, expect
from ui_axe import violations

POOL = "driver=580.95.05&gpu=A100-SXM4-80GB"
STACK = "torch=2.4.1+cu124"
ANSWERED = f"ask?{POOL}&stack={quote(STACK)}"
AWAY = ("net::ERR", "htmx:")
BROKEN = ("status of 5",)


def ask(page: Page, stack: str) -> None:
    page.get_by_label("Stack").fill(stack)
    page.get_by_role("button", name="Ask", exact=True).click()


class Held:
    """Answers that are kept back until the test lets them go."""

    def __init__(self, page: Page, pattern: str) -> None:
        self.page, self.routes, self.is_open = page, [], False
        page.route(re.compile(pattern), lambda route: self._take(route))

    def _take(self, route: Route) -> None:
        if self.is_open:
            route.continue_()
        else:
            self.routes.append(route)

    def wait(self, count: int) -> None:
        for _ in range(300):
            if len(self.routes) >= count:
                return
            self.page.wait_for_timeout(100)
        raise AssertionError(f"{len(self.routes)} requests, not {count}")

    def let_go(self) -> None:
        self.is_open = True
        for route in self.routes:
            route.continue_()
        self.routes = []


def test_a_refused_question_takes_the_place_of_the_answer_before(open_page):
    page = open_page(ANSWERED)
    answers = page.locator("#answers")
    expect(answers).to_contain_text("Allowed")
    ask(page, "troch 2.7 cu128")
    expect(answers.get_by_role("alert")).to_contain_text("stack")
    expect(answers).not_to_contain_text("Allowed")
    expect(page.get_by_label("Stack")).to_have_value("troch 2.7 cu128")
    assert violations(page) == []
    ask(page, STACK)
    expect(answers).to_contain_text("Allowed")
    expect(answers.get_by_role("alert")).to_have_count(0)


def test_one_entry_in_the_palette_is_answered_and_the_next_one_leaves_no_old_answer(open_page):
    page = open_page("entries")
    page.keyboard.press("/")
    page.keyboard.type("torch 2.4 cu124 @ prod-a100")
    found = page.locator("#found")
    expect(found).to_contain_text("torch=2.4.1+cu124")
    expect(found).to_contain_text("Assumed")
    assert violations(page) == []
    page.get_by_role("searchbox", name="Ask a question").fill("troch 2.4 @ prod-a100")
    expect(found.get_by_role("alert")).to_contain_text("Did you mean torch?")
    expect(found).not_to_contain_text("torch=2.4.1+cu124")


def test_several_lines_pasted_into_the_palette_are_read(open_page):
    page = open_page("")
    page.locator("#find").evaluate(
        """field => {
          const data = new DataTransfer();
          data.setData("text/plain", "torch\\n2.4.1\\ncu124\\n@ prod-a100");
          field.dispatchEvent(new ClipboardEvent("paste",
            { clipboardData: data, bubbles: true, cancelable: true }));
        }"""
    )
    page.wait_for_url(re.compile("find"))
    expect(page.locator("#results")).to_contain_text("torch=2.4.1+cu124")


def test_a_refused_question_has_its_address(open_page):
    page = open_page(ANSWERED)
    ask(page, "troch 2.7 cu128")
    expect(page).to_have_url(re.compile("troch(%20|\\+)2.7"))
    page.go_back()
    expect(page.locator("#answers")).to_contain_text("Allowed")
    expect(page.get_by_label("Stack")).to_have_value(STACK)


def test_a_refused_question_is_refused_without_scripts_as_well(open_page, site):
    page = open_page("ask", java_script_enabled=False)
    page.get_by_label("Driver").fill("580.95.05")
    page.get_by_label("Stack").fill("troch 2.7 cu128")
    with page.expect_response(re.compile("/ui/ask")) as answer:
        page.get_by_role("button", name="Ask", exact=True).click()
    assert answer.value.status == 400
    expect(page.locator("#answers").get_by_role("alert")).to_contain_text("stack")
    expect(page.get_by_label("Stack")).to_have_value("troch 2.7 cu128")
    expect(page.get_by_label("Driver")).to_have_value("580.95.05")


def test_a_question_that_is_too_long_is_refused_where_its_answer_would_be(open_page):
    page = open_page(ANSWERED)
    ask(page, "torch=" + "2" * 6100)
    expect(page.locator("#answers").get_by_role("alert")).to_contain_text("stack")
    expect(page.locator("#answers")).not_to_contain_text("Allowed")


def test_a_server_that_is_away_leaves_no_answer(open_page):
    page = open_page(ANSWERED, expected=AWAY)
    page.context.set_offline(True)
    ask(page, "torch=2.7.0+cu128")
    answers = page.locator("#answers")
    expect(answers.get_by_role("alert")).to_contain_text("The server cannot be reached.")
    expect(answers).not_to_contain_text("Allowed")
    expect(page.get_by_label("Stack")).to_have_value("torch=2.7.0+cu128")
    assert violations(page) == []
    page.context.set_offline(False)
    ask(page, "torch=2.7.0+cu128")
    expect(answers).to_contain_text("2.7.0")
    expect(answers.get_by_role("alert")).to_have_count(0)


def test_a_server_that_is_away_when_a_fix_is_tried_keeps_the_question(open_page):
    page = open_page(
        "ask?driver=525.60.13&gpu=A100-SXM4-80GB&stack=cuda%3D12.1,arch%3Dcompute_80",
        expected=AWAY,
    )
    page.context.set_offline(True)
    page.locator("a.button.small").first.press("Enter")
    expect(page.locator("#answers").get_by_role("alert")).to_be_focused()
    expect(page.get_by_label("Driver")).to_have_value("525.60.13")


@pytest.mark.parametrize("body", ["<h1>Bad gateway</h1>", "", "<main id=main>Sign in</main>"])
@pytest.mark.parametrize("status", [200, 502])
def test_an_answer_of_something_else_is_no_answer(open_page, body, status):
    page = open_page(ANSWERED, expected=BROKEN)
    page.route(
        re.compile("/ui/ask"),
        lambda route: route.fulfill(status=status, body=body, content_type="text/html"),
    )
    ask(page, "torch=2.7.0+cu128")
    answers = page.locator("#answers")
    expect(answers.get_by_role("alert")).to_contain_text("The question is not answered.")
    expect(answers).not_to_contain_text("Allowed")


def test_no_answer_stands_while_a_new_question_is_asked(open_page):
    page = open_page(ANSWERED)
    held = Held(page, "/ui/ask")
    page.get_by_label("Driver").focus()
    page.get_by_role("button", name="Ask", exact=True).click()
    answers = page.locator("#answers")
    expect(answers.get_by_role("status")).to_have_text("Asking…")
    expect(answers).not_to_contain_text("Allowed")
    held.wait(1)
    held.let_go()
    expect(answers).to_contain_text("Allowed")


def test_a_server_that_takes_three_seconds_is_waited_for(open_page):
    page = open_page(ANSWERED)
    held = Held(page, "/ui/ask|/ui/find")
    answers = page.locator("#answers")
    ask(page, "torch=2.2.0+cu121")
    held.wait(1)
    page.wait_for_timeout(3_000)
    expect(answers.get_by_role("status")).to_have_text("Asking…")
    expect(answers).not_to_contain_text("Allowed")
    expect(page.get_by_label("Stack")).to_have_value("torch=2.2.0+cu121")
    assert violations(page) == []
    held.let_go()
    expect(answers).to_contain_text("torch 2.2.0+cu121")


def test_an_answer_to_a_question_that_was_edited_meanwhile_is_not_shown(open_page):
    page = open_page(ANSWERED)
    held = Held(page, "/ui/ask")
    ask(page, "torch=2.2.0+cu121")
    held.wait(1)
    page.get_by_label("Stack").fill("torch=2.7.0+cu128")
    held.routes.pop(0).continue_()
    page.get_by_role("button", name="Ask", exact=True).click()
    held.wait(1)
    answers = page.locator("#answers")
    expect(answers).to_have_text(
        re.compile(r"^\s*(Asking…|This question is not answered yet\.)\s*$")
    )
    held.let_go()
    expect(answers).to_contain_text("torch 2.7.0+cu128")


def test_an_edited_question_has_no_answer_until_it_is_what_it_was(open_page):
    page = open_page(ANSWERED)
    answers, stack = page.locator("#answers"), page.get_by_label("Stack")
    stack.press("End")
    stack.press_sequentially("x")
    expect(answers).not_to_contain_text("Allowed")
    expect(answers.get_by_role("status")).to_have_text("This question is not answered yet.")
    stack.press("Backspace")
    expect(answers).to_contain_text("Allowed")


def test_back_and_forward_show_each_question_with_its_answer(open_page):
    page = open_page(ANSWERED)
    ask(page, "torch=2.7.0+cu128")
    answers = page.locator("#answers")
    expect(answers).to_contain_text("torch 2.7.0+cu128")
    for step, stack in ((page.go_back, STACK), (page.go_forward, "torch=2.7.0+cu128")):
        step()
        expect(page.get_by_label("Stack")).to_have_value(stack)
        expect(answers).to_contain_text(stack.replace("=", " "))


@pytest.mark.parametrize("scripts", [True, False])
def test_back_from_another_page_shows_no_answer_beside_what_was_typed(open_page, scripts):
    page = open_page(ANSWERED, java_script_enabled=scripts)
    page.get_by_label("Stack").fill("torch=2.7.0+cu128")
    page.goto(page.url.partition("/ui/")[0] + "/ui/keys")
    page.go_back()
    expect(page.get_by_label("Stack")).to_have_value(STACK)
    expect(page.locator("#answers")).to_contain_text("Allowed")


def test_a_session_that_ended_leads_to_signing_in_and_back(open_page, site):
    page = open_page(ANSWERED)
    place = "/ui/sign-in?next=%2Fui%2Fask%3Fstack%3Dtorch"
    page.route(
        re.compile("/ui/ask"),
        lambda route: route.fulfill(status=204, headers={"HX-Redirect": place}),
    )
    ask(page, "torch=2.7.0+cu128")
    page.wait_for_url(re.compile("/ui/sign-in"))


def test_a_refused_what_if_takes_the_place_of_the_outcome_before(open_page):
    page = open_page("what-if?target=staging-h100&driver=525.60.13")
    outcome = page.locator("#outcome")
    expect(outcome).to_contain_text("break")
    driver = page.get_by_role("combobox", name="Driver")
    driver.press_sequentially("x")
    expect(outcome).not_to_contain_text("break")
    driver.fill("580.x")
    page.get_by_role("button", name="Show").click()
    expect(outcome.get_by_role("alert")).to_contain_text("'580.x' is not a version of driver")
    expect(outcome.get_by_role("alert")).to_contain_text("Write a release, like 580.95.05")
    expect(outcome).not_to_contain_text("break")


def test_a_map_that_cannot_be_narrowed_is_not_the_one_before(open_page):
    page = open_page("matrix", expected=AWAY)
    page.context.set_offline(True)
    page.get_by_role("searchbox", name="Filter").press_sequentially("vllm*")
    expect(page.locator("#map").get_by_role("alert")).to_contain_text("cannot be reached")
    expect(page.locator("#map tbody")).to_have_count(0)
    page.context.set_offline(False)
    page.get_by_role("searchbox", name="Filter").fill("vllm*")
    page.get_by_role("searchbox", name="Filter").press("Enter")
    expect(page.locator(".map tbody tr")).to_have_count(1)


def test_a_list_that_is_being_narrowed_says_that_it_waits(open_page):
    page = open_page("entries")
    held = Held(page, "/ui/entries")
    page.get_by_label("Name").fill("torch29")
    expect(page.locator(".table")).to_have_attribute("aria-busy", "true")
    held.wait(1)
    held.let_go()
    expect(page.locator(".table tbody tr")).to_have_count(1)
    assert page.locator(".table").get_attribute("aria-busy") is None


def test_a_list_that_cannot_be_narrowed_says_why_in_its_place(open_page):
    page = open_page("decisions")
    page.get_by_label("Target begins with").fill("x" * 3000)
    expect(page.locator(".table").get_by_role("alert")).to_contain_text("target")
    expect(page.locator(".table tbody tr")).to_have_count(0)
    page.get_by_label("Target begins with").fill("")
    expect(page.locator(".table tbody tr").first).to_be_visible()


def test_a_list_that_refreshes_itself_does_not_bring_the_earlier_one_back(open_page):
    page = open_page("runs", expected=AWAY)
    expect(page.locator(".table[hx-get]")).to_have_count(1)
    page.route(re.compile("suite="), lambda route: route.abort())
    page.get_by_role("combobox", name="Suite").select_option(index=1)
    alert = page.locator(".table").get_by_role("alert")
    expect(alert).to_contain_text("cannot be reached")
    with page.expect_response(re.compile("/ui/runs$")):  # the list refreshes itself
        pass
    page.wait_for_timeout(200)
    expect(alert).to_have_count(1)


def test_of_two_cells_the_one_that_was_opened_last_is_explained(open_page):
    page = open_page("matrix")
    cells = page.locator(".map td a")
    first, last = cells.nth(0), cells.nth(1)
    wanted = last.get_attribute("href") or ""
    held = Held(page, "row=")
    first.click()
    held.wait(1)
    last.click()
    held.wait(2)
    expect(page.locator("#cell")).to_have_text("Asking…")
    held.routes[1].continue_()
    expect(page.locator("#cell h2")).to_have_count(1)
    shown = page.locator("#cell").inner_text()
    held.routes[0].continue_()
    page.wait_for_timeout(500)
    assert page.locator("#cell").inner_text() == shown
    assert page.url.endswith(wanted)


def test_what_was_found_for_a_word_goes_with_the_word(open_page):
    page = open_page("", expected=AWAY)
    page.locator("#find").press_sequentially("torch")
    expect(page.locator("#found a").first).to_be_visible()
    page.context.set_offline(True)
    page.locator("#find").press_sequentially("x")
    expect(page.locator("#found")).to_have_text(re.compile("cannot be reached"))
