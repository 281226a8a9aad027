"""Check with a deadline that a decision can be logged.

A database that has stalled neither answers nor refuses, so the check runs in a thread of its own,
one at a time.
"""

from __future__ import annotations

import copy
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from compatgate.errors import CompatgateError, Unavailable, quote_error

DEADLINE_SECONDS = 2.0
REUSED_SECONDS = 1.0
"""Time for which a result is reused."""


class _ReadinessCheck:
    def __init__(self) -> None:
        self.began = time.monotonic()
        self.ended = 0.0
        self.over = threading.Event()
        self.state: dict[str, Any] = {}
        self.error: CompatgateError | None = None

    def run(self, check: Callable[[], dict[str, Any]]) -> None:
        try:
            self.state = check()
        except CompatgateError as error:
            self.error = error
        except Exception as error:
            self.error = Unavailable(f"the gate cannot decide: {quote_error(error)}")
        self.ended = time.monotonic()
        self.over.set()

    @property
    def is_recent(self) -> bool:
        return not self.over.is_set() or time.monotonic() - self.ended < REUSED_SECONDS


class Readiness:
    """The latest check's result, shared by any number of threads.

    ``check``: returns the state, or raises an error; may never return.
    """

    def __init__(self, check: Callable[[], dict[str, Any]]) -> None:
        self._check = check
        self._choosing = threading.Lock()
        self._latest: _ReadinessCheck | None = None
        self._process = os.getpid()

    def state(self) -> dict[str, Any]:
        """Return the state, at most `REUSED_SECONDS` old."""
        latest = self._recent()
        left = latest.began + DEADLINE_SECONDS - time.monotonic()
        if not latest.over.wait(max(left, 0.0)):
            what = f"recording a decision takes longer than {DEADLINE_SECONDS:g} seconds"
            hint = "the database or its disk has stalled; the check continues, ask again"
            raise Unavailable(what, field="database", hint=hint)
        if latest.error is not None:
            raise copy.copy(latest.error)
        return latest.state

    def _recent(self) -> _ReadinessCheck:
        with self._choosing:
            if self._process != os.getpid():  # the parent's check never ends in this process
                self._latest, self._process = None, os.getpid()
            if self._latest is None or not self._latest.is_recent:
                new = _ReadinessCheck()
                thread = threading.Thread(
                    target=new.run, args=(self._check,), name="readiness", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError:  # the system has no threads left
                    what = "the system cannot start another thread"
                    raise Unavailable(what, hint="ask again") from None
                self._latest = new
            return self._latest
