"""A person at a keyboard, with a count of actions and a clock of the time spent waiting.

An action is a press of a button or link, a key that leads to a page, or a field that is filled;
going there with the key Tab is none. Waiting is the time from an action, or from opening a page,
until what it leads to is shown.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Locator, Page, expect
from ui_browser import reach


class Walk:
    """A way to a result; an action too many, or waiting too long, fails.

    Args:
        page: where it begins.
        actions: most of them.
        seconds: of waiting, all in all.
    """

    def __init__(self, page: Page, actions: int = 3, seconds: float = 5) -> None:
        self.page, self.actions, self.waited = page, 0, 0.0
        self._most, self._seconds = actions, seconds

    def open(self, url: str) -> None:
        """Follow a link that somebody sent, which is no action."""
        with self._waiting():
            self.page.goto(url)

    def press(self, wanted: Locator, *, follows: bool = True) -> None:
        """Press a button, or follow a link; wait for the page that ``follows``."""
        reach(self.page, wanted)
        if follows:
            with self._waiting() as left, self.page.expect_navigation(timeout=left):
                self._act("Enter")
        else:
            self._act("Enter")

    def fill(self, wanted: Locator, text: str) -> None:
        """Type into a field, in place of what it holds; a text of many lines is pasted."""
        reach(self.page, wanted)
        self.page.keyboard.press("ControlOrMeta+a")
        self._count()
        if "\n" in text:
            self.page.keyboard.insert_text(text)
        else:
            self.page.keyboard.type(text)

    def choose(self, wanted: Locator, label: str) -> None:
        """Choose from a list by the beginning of a label."""
        reach(self.page, wanted)
        self._count()
        self.page.keyboard.type(label)

    def go(self, key: str) -> None:
        """Go to a page with two keys."""
        self.page.keyboard.press("g")
        with self._waiting() as left, self.page.expect_navigation(timeout=left):
            self._act(key)

    def ask(self, text: str) -> None:
        """Type a question into the palette, which a key opens on every page."""
        self.page.keyboard.press("/")
        self._count()
        self.page.keyboard.type(text)

    def see(self, place: Locator, text: str | re.Pattern[str]) -> None:
        """Wait until a place shows a text."""
        with self._waiting() as left:
            expect(place).to_contain_text(text, timeout=left)

    def _act(self, key: str) -> None:
        self._count()
        self.page.keyboard.press(key)

    def _count(self) -> None:
        self.actions += 1
        assert self.actions <= self._most, f"this needs more than {self._most} actions"

    @contextmanager
    def _waiting(self) -> Iterator[float]:
        """Yield the milliseconds that are left, and count what is spent of them."""
        began = time.monotonic()
        try:
            yield max(1.0, (self._seconds - self.waited) * 1000)
        finally:
            self.waited += time.monotonic() - began
        assert self.waited <= self._seconds, f"this waits {self.waited:.1f} s"
