"""A served gate with something on every page, and a real browser."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from catalogue import own_cache
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Page,
    StorageState,
    expect,
    sync_playwright,
)
from ui_site import fill, workloads_of

ROOT = Path(__file__).parents[3]
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


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


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium; ``COMPATGATE_TEST_CHROMIUM`` names the program.

    It ends with its file: as long as it is there, no other test can have an event loop.
    """
    program = os.environ.get("COMPATGATE_TEST_CHROMIUM") or next(
        (found for name in _NAMES if (found := shutil.which(name))), None
    )
    if program is None:
        reason = "no Chromium: install chromium-headless-shell, or set COMPATGATE_TEST_CHROMIUM"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.getuid() == 0 else []
        running = playwright.chromium.launch(executable_path=program, args=arguments)
        yield running
        running.close()


Opened = Callable[..., Page]
PATIENCE_MS = 30_000
"""For what a browser is to show: another process of tests may want both cores."""
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def signed_in_state(browser: Browser, site: Site) -> StorageState:
    """Cookies of a browser in which the administrator signed in."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(site.at("sign-in"))
    page.get_by_label("Token").fill(site.admin)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(site.at(""))
    state = context.storage_state()
    context.close()
    return state


@pytest.fixture
def open_page(browser: Browser, site: Site, signed_in_state: StorageState) -> Iterator[Opened]:
    """Opens pages; a console error, or an error of a script, fails the test.

    ``signed_in`` uses the administrator's token; ``expected`` are parts of lines of the console
    that the test provokes; other options are those of a browser context.
    """
    contexts, wrong = [], []

    def open_(
        path: str, *, signed_in: bool = False, expected: tuple[str, ...] = (), **options
    ) -> Page:
        def note(message: ConsoleMessage) -> None:
            fine = any(part in message.text for part in ("status of 4", *expected))
            if message.type in ("error", "warning") and not fine:
                wrong.append(message.text)

        options.setdefault("viewport", {"width": 1440, "height": 900})
        options.setdefault("reduced_motion", "reduce")  # colours are looked at right after a change
        if signed_in:
            options["storage_state"] = signed_in_state
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", note)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(site.at(path))
        return page

    yield open_
    for context in contexts:
        context.close()
    assert wrong == []


COLOURS = ["color-contrast", "link-in-text-block"]
"""The rules of axe-core that look at colours: only they can find another thing in dark mode."""
_RUN = """
async rules => {
    const options = {resultTypes: ["violations"], ...(rules.length ? {runOnly: rules} : {})};
    return (await axe.run(document, options)).violations
}"""


@pytest.fixture
def violations() -> Callable[..., list[str]]:
    """What axe-core finds on a page that is serious or critical, as lines."""

    def find(page: Page, *, colours_only: bool = False) -> list[str]:
        if page.evaluate("typeof axe") == "undefined":
            page.evaluate(Axe().axe_script)
        return [
            f"{one['id']}: {one['help']}: {node['html'][:160]}"
            for one in page.evaluate(_RUN, COLOURS if colours_only else [])
            if one["impact"] in ("serious", "critical")
            for node in one["nodes"]
        ]

    return find
