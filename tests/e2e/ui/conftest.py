"""A served gate with something on every page, and a real browser."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from catalogue import own_cache
from playwright.sync_api import Browser, Page, expect
from ui_axe import axe_script
from ui_browser import LOOK, PATIENCE_MS, Chromium, Watched, program
from ui_site import fill, workloads_of

ROOT = Path(__file__).parents[3]
HERE = Path(__file__).parent


class Site:
    """A served gate, and the tokens that open it."""

    def __init__(self, url: str, database: str, admin: str) -> None:
        self.url, self.database, self.admin = url, database, admin

    def at(self, path: str) -> str:
        return f"{self.url}/ui/{path}"


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The pages of a gate with the example matrix; tests leave it as they found it."""
    folder = tmp_path_factory.mktemp("site")
    database = f"sqlite:///{folder / 'gate.db'}"
    fill(database)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("COMPATGATE_")}
    environment["XDG_CACHE_HOME"] = own_cache(folder)
    environment["COMPATGATE_WORKLOADS"] = str(workloads_of(database))
    process = subprocess.Popen(
        [sys.executable, "-m", "compatgate", "serve", "--port", "0", "--database", database],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment,
    )
    assert process.stdout
    assert process.stderr
    first = process.stdout.readline()
    assert first.startswith("compatgate is serving on"), process.stderr.read()
    admin = next(line for line in process.stderr if "cg_" in line).split()[-1]
    yield Site(first.split()[-1], database, admin)
    process.terminate()
    assert process.wait(20) == 0


_running: list[Chromium] = []


@pytest.fixture(scope="session")
def chromium_path() -> str:
    """The program."""
    return program()


@pytest.fixture
def chromium(chromium_path: str, site: Site) -> Chromium:
    """Chromium, where the administrator has signed in."""
    if not _running:
        _running.append(Chromium(chromium_path))
    running = _running[0]
    if running.signed_in is None:
        page = running.page(signed_in=False)
        page.goto(site.at("sign-in"))
        page.get_by_label("Token").fill(site.admin)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(site.at(""))
        running.signed_in = page.context.storage_state()
        running.tidy()
    return running


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Iterator[None]:
    """End Chromium after the last test of this folder: no other test could have an event loop."""
    yield
    if _running and (nextitem is None or not nextitem.path.is_relative_to(HERE)):
        _running.pop().stop()


@pytest.fixture
def browser(chromium: Chromium) -> Browser:
    """For contexts of one test."""
    return chromium.browser


Opened = Callable[..., Page]
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture
def open_page(chromium: Chromium, site: Site) -> Iterator[Opened]:
    """Opens pages; a console error, or an error of a script, fails the test.

    ``signed_in`` uses the administrator's token; ``expected`` are parts of lines of the console
    that the test provokes; other options are those of a browser context.
    """
    contexts, watched = [], Watched()

    def open_(
        path: str, *, signed_in: bool = False, expected: tuple[str, ...] = (), **options
    ) -> Page:
        if options:
            state = chromium.signed_in if signed_in else None
            contexts.append(chromium.browser.new_context(**LOOK | options, storage_state=state))
            page = contexts[-1].new_page()
        else:
            page = chromium.page(signed_in=signed_in)
        page.set_default_timeout(PATIENCE_MS)
        watched.watch(page, expected)
        page.goto(site.at(path))
        return page

    yield open_
    for context in contexts:
        context.close()
    chromium.tidy()
    watched.leave()
    assert watched.wrong == []


@pytest.fixture
def look_at(chromium: Chromium, site: Site) -> Iterator[Opened]:
    """Goes to a page in a tab that is there, for tests that only look: else as ``open_page``."""
    watched = Watched()

    def go(path: str, *, signed_in: bool = False, scripts: bool = True) -> Page:
        tab = chromium.tab(signed_in=signed_in, scripts=scripts, begin=axe_script())
        watched.watch(tab)
        tab.goto(site.at(path))
        return tab

    yield go
    watched.leave()
    assert watched.wrong == []


Api = Callable[..., Any]


@pytest.fixture
def api(site: Site) -> Api:
    """Asks the gate over REST as the administrator."""

    def ask(method: str, path: str, body: object = None) -> Any:
        headers = {"Authorization": f"Bearer {site.admin}", "Content-Type": "application/json"}
        data = json.dumps(body).encode() if body else None
        request = urllib.request.Request(
            f"{site.url}/api/v1/{path}", data=data, method=method, headers=headers
        )
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    return ask
