"""Walk through the twelve jobs in a browser, by keyboard alone, with counted actions.

Each is walked twice: on a wide, light screen, and on a narrow, dark one without scripts. The first
two take one question and one click.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from itertools import count
from pathlib import Path
from time import monotonic, sleep
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode

import pytest
from engines import Engine, missing, vary_python
from engines import engine as running_engine
from msgspec.structs import replace
from playwright.sync_api import expect
from ui_axe import violations
from ui_browser import DESK, PHONE
from ui_runs import DRIVER, GPU, STAGE, Runs, make_scenario
from ui_site import workloads_of
from ui_walk import Walk

from compatgate.core.stack import format_stack
from compatgate.service.app import open_rooms

Api = Callable[..., Any]
Begin = Callable[..., Walk]

OLD, NEW = "535.183.01", "580.95.05"
_NUMBERS = count(1)
IMAGE = "compatgate-test/walk:1"
BLESSED = re.compile("[Bb]lessed as torch28-cu128, if its cuDNN and NCCL are the wheel's")
DENIED = {"cuda": "12.1", "cudnn": "8.9.7", "torch": "2.2.2+cu121"}
QUESTION = {"target": "prod-a100", "stack": format_stack(DENIED)}


@pytest.fixture(params=[True, False], ids=["wide-light", "narrow-dark-no-scripts"])
def scripts(request) -> bool:
    """Tell whether the browser runs scripts; it decides the rest of the look, too."""
    return request.param


@pytest.fixture
def begin(open_page, scripts) -> Begin:
    """Begin a walk on a page."""
    look = {"viewport": DESK, "color_scheme": "light"}
    if not scripts:
        look = {"viewport": PHONE, "color_scheme": "dark", "java_script_enabled": False}

    def open_(path: str, actions: int, *, seconds: float = 5) -> Walk:
        return Walk(open_page(path, signed_in=True, **look), actions, seconds)

    return open_


@pytest.fixture(scope="module")
def runs(site) -> Iterator[Runs]:
    """A worker's side of the site."""
    rooms = open_rooms(site.database, overlays=[])
    yield Runs(rooms, workloads_of(site.database))
    rooms.close()


@pytest.fixture
def cudnn(scripts) -> str:
    """Return the cuDNN of a candidate: a canary of one walk is no evidence for the other."""
    return "9.1.1" if scripts else "9.2.1"


@pytest.fixture
def candidate(api: Api, cudnn: str) -> Iterator[str]:
    """A candidate for a target whose policy asks for a canary before a blessing."""
    canary = {"require": True, "suites": ["conv-only"], "acceptDevelopment": True}
    pool = {"name": "a100", "gpu": GPU, "driver": DRIVER, "count": 2}
    spec = {"pools": [pool], "policy": {"mode": "enforce", "canary": canary}}
    api("POST", "targets", {"metadata": {"name": "bench"}, "spec": spec, "reason": "try"})
    parts = {"cuda": "12.4.*", "cudnn": cudnn, "torch": "2.4.0"}
    spec = {"targets": ["bench"], "components": parts, "status": "candidate"}
    api("POST", "entries", {"metadata": {"name": "new-torch"}, "spec": spec, "reason": "try"})
    yield "new-torch"
    api("DELETE", "entries/new-torch?reason=over")
    api("DELETE", "targets/bench?reason=over")


@pytest.fixture
def racks(api: Api) -> Iterator[str]:
    """A target with two racks of three nodes each, and no upgrade: whose names are used once."""
    target = f"racks-{next(_NUMBERS)}"
    pool = {"name": "a100", "gpu": "A100-SXM4-80GB", "driver": OLD, "count": 6}
    labels = {
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
        "nvidia.com/cuda.driver-version.full": OLD,
    }
    nodes = [
        {
            "name": f"rolled-{number}",
            "target": target,
            "labels": labels | {"topology.kubernetes.io/rack": f"r{number % 2}"},
        }
        for number in range(6)
    ]
    spec = {"pools": [pool], "policy": {"mode": "enforce"}}
    api("POST", "targets", {"metadata": {"name": target}, "spec": spec, "reason": "try"})
    api("POST", "nodes", {"cluster": "racks", "nodes": nodes})
    yield target
    for one in api("GET", f"upgrades?target={target}")["items"]:
        with suppress(HTTPError):  # it has ended
            api("POST", f"upgrades/{one['name']}/roll-back?reason=over")
    for node in nodes:
        api("DELETE", f"nodes/{node['name']}?cluster=racks&reason=over")
    api("DELETE", f"targets/{target}?reason=over")


def test_job_1_does_torch_2_8_run_on_our_h100s(begin, scripts):
    """The palette answers while one types; without scripts, Ask does with one question."""
    if scripts:
        walk = begin("", actions=1)
        walk.ask("does torch 2.8 run on our H100s?")
        pools = re.compile(r"Runs on \d+ of \d+ pools with H100")
        walk.see(walk.page.locator("#found"), pools)
        walk.see(walk.page.locator("#found"), BLESSED)
    walk = begin("ask", actions=2)
    walk.fill(walk.page.get_by_label("Stack", exact=True), "torch 2.8 @ H100")
    button = walk.page.get_by_role("button", name="Ask", exact=True)
    walk.press(button, follows=not scripts)
    answer = walk.page.locator("#answers .answer")
    walk.see(answer, BLESSED)
    if not scripts:  # on a phone the answer follows the button
        assert 0 < answer.bounding_box()["y"] - button.bounding_box()["y"] < 120


def test_job_2_what_runs_on_this_target(begin, scripts):
    """No question: the column of the target. One click: the reason of a cell."""
    walk = begin("?every=yes", actions=1)
    cell = walk.page.get_by_role("link", name="PyTorch 2.8, staging-h100: works, with a note")
    walk.press(cell, follows=not scripts)
    walk.see(walk.page.locator("#cell"), BLESSED)
    walk.open(walk.page.url)  # its address can be sent to a colleague
    walk.see(walk.page.locator("#cell"), BLESSED)
    if scripts:
        assert violations(walk.page) == []


def test_job_3_why_it_is_denied_and_the_change_that_allows_it(begin, api):
    """No action shows why, and one asks with the change."""
    stack = {"vllm": "0.14.0", "torch": "2.9.0"}
    asked = api("POST", "gate", {"target": "inference-l4", "stack": stack})
    walk = begin(f"verdicts/{asked['id']}", actions=1)
    heading = "Denied: vLLM 0.14.0 + PyTorch 2.9.0 on inference-l4"
    walk.see(walk.page.locator("h1"), heading)
    walk.press(walk.page.locator("#changes a.button").first)
    walk.see(walk.page.locator("#answers"), re.compile("^\\s*Allowed"))
    expect(walk.page.locator("#q-stack")).to_have_value(re.compile("torch=2.9.1"))


def test_job_4_a_denied_stack_is_waived_for_a_week(begin, api, scripts):
    asked = api("POST", "gate", {"target": "prod-a100", "stack": DENIED})
    walk = begin(f"verdicts/{asked['id']}", actions=3, seconds=8)  # Ask is opened, too
    page = walk.page
    walk.press(page.get_by_role("link", name="Draft the waiver").first)
    if scripts:
        walk.see(page.locator("#effects"), "This waiver allows 1 stack")
    walk.fill(page.get_by_label("Reason", exact=True), "moves to torch 2.8 on Friday")
    walk.press(page.get_by_role("button", name="Create"))
    walk.see(page.get_by_role("status").first, "Created")
    name = page.url.rpartition("/")[2]
    try:
        walk.open(page.url.replace(f"waivers/{name}", f"ask?{urlencode(QUESTION)}"))  # not logged
        walk.see(page.locator("#answers"), re.compile("^\\s*Allowed"))
        spec = api("GET", f"waivers/{name}")["spec"]
        assert spec["targets"] == ["prod-a100"]
        assert date.fromisoformat(spec["expires"]) - datetime.now(UTC).date() <= timedelta(days=7)
    finally:
        api("DELETE", f"waivers/{name}?reason=over")


def test_job_5_an_entry_is_blessed_with_its_canary(begin, candidate, cudnn, api, runs, scripts):
    """Three actions: run its suite, say why, bless; the canary runs meanwhile."""
    walk = begin(f"entries/{candidate}", actions=3)
    page = walk.page
    walk.see(page.locator("main"), "Runs are missing")
    with page.context.expect_page() as opened:
        walk.press(page.get_by_role("button", name="Run conv-only and watch"), follows=False)
    run = opened.value
    expect(run.locator("#state")).to_contain_text("queued")
    versions = {"cuda": "12.4.1", "cudnn": f"{cudnn}.17", "torch": "2.4.0+cu124"}
    with runs.taking(run.url.rpartition("/")[2], versions=versions):
        wait_until(lambda: api("GET", f"entries/{candidate}")["promotion"]["state"] == "ready")
        if scripts:
            expect(run.locator("#state")).to_contain_text("passed")
    walk.open(page.url)
    walk.see(page.locator("main"), "Every suite has passed")
    walk.fill(page.get_by_label("Reason", exact=True), "its canary passed")
    walk.press(page.get_by_role("button", name="Bless", exact=True))
    walk.see(page.get_by_role("status").first, f"{candidate} is blessed since revision")
    assert api("GET", f"entries/{candidate}")["spec"]["status"] == "blessed"


def test_job_6_what_does_driver_580_break(begin, scripts):
    walk = begin("targets/prod-a100", actions=3, seconds=20)  # the first plan after a start
    page = walk.page
    walk.press(page.get_by_role("link", name="Change the driver"))
    walk.fill(page.get_by_role("combobox", name="Driver"), "580")
    walk.press(page.get_by_role("button", name="Show"), follows=not scripts)
    walk.see(page.locator("#outcome"), "is the newest of branch 580")
    walk.see(page.locator("#outcome"), "need an edited entry")
    expect(page.locator("#outcome .is-fail.finding")).to_have_count(0)  # no fact breaks


def test_job_7_an_upgrade_is_carried_out_or_withdrawn(begin, racks, scripts):
    """Three actions propose it from its plan, one starts a wave; three give it up."""
    walk = begin(f"targets/{racks}/plan?driver={NEW}", actions=7 if scripts else 6)
    page = walk.page
    walk.press(page.get_by_role("link", name="Create an upgrade"))
    walk.fill(page.get_by_label("Reason", exact=True), "fixes Xid 119")
    walk.press(page.get_by_role("button", name="Propose"))
    walk.see(page.get_by_role("status").first, "No wave has started")
    walk.see(page.locator("#live"), "rack r0 0/3")
    if scripts:
        walk.press(page.get_by_role("button", name="Start wave 1"))
        walk.see(page.get_by_role("status").first, "Started wave 1")
    verb, done = ("Roll back", "Rolled back") if scripts else ("Withdraw", "Withdrew")
    walk.press(page.locator("summary", has_text=verb), follows=False)
    walk.fill(page.get_by_label("Reason", exact=True).nth(1), "the racks move first")
    walk.press(page.get_by_role("button", name=verb))
    walk.see(page.get_by_role("status").first, done)
    now = "Reinstall the former driver" if scripts else "nothing to reinstall"
    walk.see(page.locator("#now"), now)


def test_job_8_which_nodes_drifted_and_since_when(begin, scripts):
    walk = begin("", actions=2 if scripts else 3)
    page = walk.page
    if scripts:
        walk.go("y")
    else:
        walk.press(page.get_by_role("navigation", name="Pages").get_by_role("link", name="Nodes"))
        walk.press(page.locator(".tabs").get_by_role("link", name="Drift"))
    walk.press(page.get_by_role("link", name="gpu-017").first)
    walk.see(page.locator("h1"), "gpu-017 has drifted from prod-a100")
    walk.see(page.locator("main"), "5 h ago")
    walk.see(page.locator("#witnesses"), "550.54.15")


@pytest.fixture
def engine(scripts) -> Iterator[Engine | None]:
    """An engine with an image whose program waits for a minute; None where none is needed."""
    if not scripts or missing():
        yield None
        return
    with running_engine(gpus=True) as started:
        vary_python(started.api, IMAGE, SCENARIO=make_scenario(hold=60))
        yield started


def test_job_9_a_canary_is_started_followed_and_its_failure_read(begin, runs, api, scripts, engine):
    """Seven actions start it; its progress and estimate show, and what follows its container's end.

    Without an engine the program is a process, and its end is that of the run.
    """
    walk = begin("runs", actions=7, seconds=60)
    page = walk.page
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
    if not scripts:
        api("POST", f"runs/{run}/cancel", {"reason": "over"})
        return
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


def test_job_10_two_stacks_are_compared_side_by_side(begin):
    walk = begin("entries/torch24-cu124", actions=3)
    page = walk.page
    walk.press(page.get_by_role("link", name="Compare"))
    walk.fill(page.get_by_label("With", exact=True), "torch24-cu121")
    walk.press(page.get_by_role("button", name="Compare"))
    walk.see(page.locator("#parts"), "9.1.0")
    expect(page.locator("#parts tbody tr").first).to_contain_text("allowed")
    expect(page.locator("#parts").get_by_text("differs").first).to_be_attached()


def test_job_11_what_the_gate_said_on_a_day(begin, scripts):
    """Three actions lead to the decisions of a day, and one more to an answer as first given."""
    day = (datetime.now(UTC) - timedelta(days=3)).date().isoformat()
    walk = begin("", actions=4)
    page = walk.page
    if scripts:
        walk.go("d")
    else:
        walk.press(
            page.get_by_role("navigation", name="Pages").get_by_role("link", name="Decisions")
        )
    walk.press(page.get_by_text("As a table"), follows=False)
    walk.press(page.get_by_role("link", name=day))
    walk.see(page.locator("#decisions"), "prod-a100")
    walk.press(page.locator("#decisions tbody a").first)
    walk.see(page.locator("main h1"), re.compile("(Allowed|Denied|No decision): "))


def test_job_12_a_token_is_made_and_revoked(begin, scripts):
    walk = begin("tokens", actions=4)
    page, name = walk.page, f"ci-{'wide' if scripts else 'narrow'}"
    walk.fill(page.get_by_label("Name", exact=True), name)
    walk.press(page.get_by_role("button", name="Create"))
    walk.see(page.get_by_role("status").first, f"The token {name}, shown only once")
    row = page.locator("#tokens tr", has_text=name)
    walk.press(row.get_by_role("button", name="Revoke"))
    walk.see(page.locator("#ending"), "Requests with this token will be refused")
    walk.press(page.get_by_role("button", name=f"Revoke {name}"))
    walk.see(page.get_by_role("status").first, f"Revoked the token {name}")
    expect(row).to_contain_text("revoked")
    expect(row.get_by_role("button")).to_have_count(0)


def test_an_upgrade_is_stopped_and_whoever_watches_sees_it(racks, open_page, api):
    name = f"{racks}-580"
    body = {"name": name, "target": racks, "driver": NEW, "reason": "fixes Xid 119"}
    api("POST", "upgrades", body)
    watching = open_page(f"upgrades/{name}", signed_in=True)
    start = watching.get_by_role("button", name="Start wave 1")
    start.focus()
    page = open_page(f"upgrades/{name}", signed_in=True)
    walk = Walk(page, actions=2)
    reason = page.locator("#stop").get_by_label("Reason", exact=True).first
    walk.fill(reason, "jobs hang on rack r0")
    walk.press(page.get_by_role("button", name="Stop", exact=True))
    walk.see(page.get_by_role("status").first, "Every wave waits")
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    expect(watching.locator("#now")).to_contain_text("jobs hang on rack r0")
    expect(start).to_have_count(0)
    assert violations(watching) == []


def test_the_menu_stays_in_sight_and_has_at_most_twelve_links(open_page):
    page = open_page("facts/gpus")
    links = page.locator("nav.side a:visible")
    assert links.count() <= 12
    page.mouse.wheel(0, 4000)
    expect(links.first).to_be_in_viewport()


def wait_until(is_so: Callable[[], bool], seconds: float = 30) -> None:
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
