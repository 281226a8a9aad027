"""One Chromium for all tests of pages, and what they share in it: contexts, and tabs that go on.

A context of its own costs a test more time than most pages take to load, and a tab of its own half
as much as one that is there.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import (
    BrowserContext,
    ConsoleMessage,
    Locator,
    Page,
    StorageState,
    sync_playwright,
)
from playwright.sync_api import Error as PlaywrightError

PATIENCE_MS = 30_000
"""For what a browser is to show: another process of tests may want both cores."""
DESK, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
LOOK: dict[str, Any] = {
    "viewport": DESK,
    "reduced_motion": "reduce",  # colours are looked at right after a change
}
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def find_chromium() -> str | None:
    """Find Chromium; ``COMPATGATE_TEST_CHROMIUM`` names another one."""
    return os.environ.get("COMPATGATE_TEST_CHROMIUM") or next(
        (found for name in _NAMES if (found := shutil.which(name))), None
    )


def program() -> str:
    """Return Chromium; without any, skip the test, or fail it in CI."""
    found = find_chromium()
    if found is None:
        reason = "no Chromium: install chromium-headless-shell, or set COMPATGATE_TEST_CHROMIUM"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


class Chromium:
    """A running browser.

    Attributes:
        browser: for contexts that nobody shares.
        signed_in: cookies of a session, once there is one.
    """

    def __init__(self, path: str) -> None:
        arguments = ["--no-sandbox"] if os.getuid() == 0 else []
        self._playwright = sync_playwright().start()
        self.browser = self._playwright.chromium.launch(executable_path=path, args=arguments)
        self.signed_in: StorageState | None = None
        self._contexts: dict[bool, BrowserContext] = {}
        self._idle: dict[bool, Page] = {}
        self._tabs: dict[tuple[bool, bool], Page] = {}

    def stop(self) -> None:
        """End it."""
        self.browser.close()
        self._playwright.stop()

    def page(self, *, signed_in: bool) -> Page:
        """Return a page of a context that tests share one after the other: a new one, or as new."""
        if signed_in not in self._contexts:
            state = self.signed_in if signed_in else None
            self._contexts[signed_in] = self.browser.new_context(**LOOK, storage_state=state)
        context = self._contexts[signed_in]
        idle = self._idle.pop(signed_in, None)
        return idle or context.new_page()

    def tidy(self) -> None:
        """Make the shared contexts what they were: the cookies of their beginning, an idle page."""
        for signed_in, context in self._contexts.items():
            if signed_in in self._idle:
                continue  # no test used it
            context.set_offline(False)
            for page in context.pages:
                if signed_in in self._idle or not _is_renewed(page):
                    page.close()
                else:
                    self._idle[signed_in] = page
            context.clear_cookies()
            if signed_in and self.signed_in:
                context.add_cookies(self.signed_in.get("cookies", []))  # type: ignore[arg-type]

    def tab(self, *, signed_in: bool, scripts: bool, begin: str) -> Page:
        """The tab that tests use one after the other which only look; each page begins a script."""
        key = signed_in, scripts
        if key not in self._tabs:
            state = self.signed_in if signed_in else None
            context = self.browser.new_context(
                **LOOK, storage_state=state, java_script_enabled=scripts
            )
            tab = self._tabs[key] = context.new_page()
            tab.set_default_timeout(PATIENCE_MS)
            tab.once("crash", lambda _: self._tabs.pop(key))
            tab.add_init_script(begin)
        tab = self._tabs[key]
        tab.set_viewport_size(DESK)  # type: ignore[arg-type]
        tab.emulate_media(color_scheme="light")
        return tab


def _is_renewed(page: Page) -> bool:
    """Make a page what a new one is, but for its process; say whether that went well."""
    try:
        page.unroute_all(behavior="ignoreErrors")
        page.evaluate("sessionStorage.clear()")
        page.goto("about:blank")
        page.set_viewport_size(DESK)  # type: ignore[arg-type]
        page.emulate_media(color_scheme="light")
        page.mouse.move(-1, -1)
    except PlaywrightError:
        return False
    return True


def reach(page: Page, wanted: Locator) -> None:
    """Go to a place with the key Tab alone; it is looked up once, and again once it is replaced."""
    wanted.wait_for()
    place = wanted.element_handle()
    for _ in range(200):
        reached = place.evaluate("e => e.isConnected ? e === document.activeElement : null")
        if reached:
            return
        if reached is None:
            place = wanted.element_handle()
        else:
            page.keyboard.press("Tab")
    raise AssertionError("the key Tab does not lead there")


class Watched:
    """What goes wrong on pages while a test looks at them.

    Attributes:
        wrong: errors and warnings of the console, and errors of scripts.
    """

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self._undo: list[Callable[[], None]] = []

    def watch(self, page: Page, expected: tuple[str, ...] = ()) -> None:
        """Note what goes wrong on a page, but for lines of the console that have these parts."""

        def note(message: ConsoleMessage) -> None:
            fine = any(part in message.text for part in ("status of 4", *expected))
            if message.type in ("error", "warning") and not fine:
                self.wrong.append(f"{message.text} ({message.location.get('url')})")

        def fail(error: Exception) -> None:
            self.wrong.append(str(error))

        page.on("console", note)
        page.on("pageerror", fail)
        self._undo += [
            lambda: page.remove_listener("console", note),
            lambda: page.remove_listener("pageerror", fail),
        ]

    def leave(self) -> None:
        """Look no more."""
        for undo in self._undo:
            undo()
