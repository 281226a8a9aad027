"""Whether the gate is ready, found out with a deadline and without piling up.

A database that has stalled does not answer, and does not refuse either. So the check runs in a
thread of its own, one at a time; whoever asks waits for it no longer than the deadline.
"""

from __future__ import annotations

import copy
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from compatgate.errors import CompatgateError, Unavailable

DEADLINE_SECONDS = 2.0
REUSED_SECONDS = 1.0
"""How long a result is given to others who ask."""
_HINT = "the database or its disk has stalled; the check goes on, ask again"


class _Check:
    """One check: under way, or over with a state or an error."""

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
            self.error = Unavailable(f"the gate cannot decide: {error}")
        self.ended = time.monotonic()
        self.over.set()

    @property
    def is_recent(self) -> bool:
        return not self.over.is_set() or time.monotonic() - self.ended < REUSED_SECONDS


class Readiness:
    """Gives the result of the latest check to any number of threads.

    Args:
        check: gives what readers are told; raises what is wrong. May take for ever.
    """

    def __init__(self, check: Callable[[], dict[str, Any]]) -> None:
        self._check = check
        self._choosing = threading.Lock()
        self._latest: _Check | None = None
        self._process = os.getpid()

    def state(self) -> dict[str, Any]:
        """What the check gave, at most `REUSED_SECONDS` ago.

        Raises:
            Unavailable: the gate is not ready, or the check takes longer than the deadline.
        """
        latest = self._recent()
        left = latest.began + DEADLINE_SECONDS - time.monotonic()
        if not latest.over.wait(max(left, 0.0)):
            what = f"recording a decision takes longer than {DEADLINE_SECONDS:g} seconds"
            raise Unavailable(what, field="database", hint=_HINT)
        if latest.error is not None:
            raise copy.copy(latest.error)
        return latest.state

    def _recent(self) -> _Check:
        """The check under way or over a moment ago; else a new one."""
        with self._choosing:
            if self._process != os.getpid():  # the parent's check does not end here
                self._latest, self._process = None, os.getpid()
            if self._latest is None or not self._latest.is_recent:
                new = _Check()
                thread = threading.Thread(
                    target=new.run, args=(self._check,), name="readiness", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError:  # the system has no threads left
                    raise Unavailable("the system has no threads left", hint="ask again") from None
                self._latest = new
            return self._latest
