"""Walk through jobs in a browser, with counted actions.

The first two take one question and one click; wide and narrow, light and dark, without scripts.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from engines import Engine, missing, vary_python
from engines import engine as running_engine
from msgspec.structs import replace
from playwright.sync_api import expect
from ui_axe import violations
from ui_runs import DRIVER, GPU, STAGE, Runs, make_scenario
from ui_site import workloads_of
from ui_walk import Walk

from compatgate.service.app import open_rooms

Api = Callable[..., Any]

LOOKS = [
    {"viewport": {"width": 1440, "height": 900}},
    {"viewport": {"width": 390, "height": 844}},
    {"viewport": {"width": 1440, "height": 900}, "color_scheme": "dark"},
]
IMAGE = "compatgate-test/walk:1"
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


@pytest.fixture(scope="module")
def runs(site) -> Iterator[Runs]:
    """A worker's side of the site."""
    rooms = open_rooms(site.database, overlays=[])
    yield Runs(rooms, workloads_of(site.database))
    rooms.close()


@pytest.fixture
def candidate(api: Api) -> Iterator[str]:
    """A candidate for a target whose policy asks for a canary before a blessing."""
    canary = {"require": True, "suites": ["conv-only"], "acceptDevelopment": True}
    pool = {"name": "a100", "gpu": GPU, "driver": DRIVER, "count": 2}
    spec = {"pools": [pool], "policy": {"mode": "enforce", "canary": canary}}
    api("POST", "targets", {"metadata": {"name": "bench"}, "spec": spec, "reason": "try"})
    parts = {"cuda": "12.4.*", "cudnn": "9.1.1", "torch": "2.4.0"}
    spec = {"targets": ["bench"], "components": parts, "status": "candidate"}
    api("POST", "entries", {"metadata": {"name": "new-torch"}, "spec": spec, "reason": "try"})
    yield "new-torch"
    api("DELETE", "entries/new-torch?reason=over")
    api("DELETE", "targets/bench?reason=over")


def test_job_5_an_entry_is_blessed_with_its_canary(candidate, open_page, api, runs):
    """Three actions: run its suite, say why, bless; the canary runs meanwhile."""
    page = open_page(f"entries/{candidate}", signed_in=True)
    walk = Walk(page, actions=3)
    walk.see(page.locator("main"), "Runs are missing")
    with page.context.expect_page() as opened:
        walk.press(page.get_by_role("button", name="Run conv-only and watch"), follows=False)
    run = opened.value
    expect(run.locator("#state")).to_contain_text("queued")
    versions = {"cuda": "12.4.1", "cudnn": "9.1.1.17", "torch": "2.4.0+cu124"}
    with runs.taking(run.url.rpartition("/")[2], versions=versions):
        expect(run.locator("#state")).to_contain_text("passed", timeout=30_000)
    wait_until(lambda: api("GET", f"entries/{candidate}")["promotion"]["state"] == "ready")
    walk.open(page.url)
    walk.see(page.locator("main"), "Every suite has passed")
    walk.fill(page.get_by_label("Reason", exact=True), "its canary passed")
    walk.press(page.get_by_role("button", name="Bless", exact=True))
    walk.see(page.get_by_role("status").first, f"{candidate} is blessed since revision")
    assert api("GET", f"entries/{candidate}")["spec"]["status"] == "blessed"


@pytest.fixture
def engine() -> Iterator[Engine | None]:
    """An engine with an image whose program waits for a minute; None where none can run."""
    if missing():
        yield None
        return
    with running_engine(gpus=True) as started:
        vary_python(started.api, IMAGE, SCENARIO=make_scenario(hold=60))
        yield started


def test_job_9_a_canary_is_started_followed_and_its_failure_read(open_page, runs, engine):
    """Seven actions start it; its progress and estimate show, and what follows its container's end.

    Without an engine the program is a process, and its end is that of the run.
    """
    page = open_page("runs", signed_in=True)
    walk = Walk(page, actions=7, seconds=60)
    walk.press(page.get_by_role("link", name="Submit a run"))
    walk.choose(page.get_by_label("Suite"), "conv-only")
    walk.choose(page.locator("select[name=target]"), "prod-a100")
    stack = "cuda=12.4,cudnn=9.1.0,torch=2.4.1+cu124"
    walk.fill(page.get_by_label("Stack under test"), stack)
    if engine:
        walk.fill(page.get_by_label("Image under test"), IMAGE)
        walk.fill(page.locator("input[name=against]"), "none")
    walk.press(page.get_by_role("button", name="Submit"))
    walk.see(page.locator("#state"), "queued")
    run = page.url.rpartition("/")[2]
    host = replace(STAGE, executor="docker", endpoint=engine.endpoint) if engine else STAGE
    with runs.taking(run, host, hold=60):
        walk.see(page.locator("#state"), "53 %")
        walk.see(page.locator("#state"), "left")
        kill_container(engine, run) if engine else end_program()
        walk.see(page.locator("#state"), "stopped on its host" if engine else "SIGKILL")
    walk.see(page.locator("#next"), "Attempt 2 of 3 starts" if engine else "run it again")
    assert violations(page) == []
    if engine:
        vary_python(engine.api, IMAGE, SCENARIO=make_scenario())
        with runs.taking(run, host):
            walk.see(page.locator("#state"), "passed")
        runs.declare_hosts()


def test_job_11_what_the_gate_said_on_a_day_and_would_say_now(open_page):
    """Three actions lead to the decisions of a day, and one more to an answer as first given."""
    day = (datetime.now(UTC) - timedelta(days=3)).date().isoformat()
    page = open_page("")
    walk = Walk(page, actions=4)
    walk.go("d")
    walk.press(page.get_by_text("As a table"), follows=False)
    walk.press(page.get_by_role("link", name=day))
    walk.see(page.locator("#decisions"), "prod-a100")
    walk.press(page.locator("#decisions tbody a").first)
    walk.see(page.locator("main h1"), re.compile("(Allowed|Denied|No decision): "))


def wait_until(is_so: Callable[[], bool], seconds: float = 20) -> None:
    """Wait for the server."""
    end = monotonic() + seconds
    while not is_so():
        assert monotonic() < end
        sleep(0.1)


def kill_container(engine: Engine, run: str) -> None:
    """Kill the containers of a run that are running, as a person on its host."""
    for container in engine.api.containers(filters={"label": f"dev.compatgate.run={run}"}):
        engine.api.kill(container["Id"])


def end_program(parent: int | None = None) -> None:
    """Kill the program of the canary that this process runs, as the kernel does without memory."""
    for task in Path(f"/proc/{parent or os.getpid()}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            if b"program.py" in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0"):
                os.kill(child, signal.SIGKILL)
            else:
                end_program(child)
