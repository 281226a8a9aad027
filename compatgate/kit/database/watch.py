"""Look at the database in one thread, with deadlines, so that requests never wait for it.

A request that needs a recent view asks the thread and waits a moment at most. Once an outage is
noticed nobody waits: the thread tries again by itself until the database is back. An outage is an
error of the database, or its silence: a stopped server neither answers nor refuses.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta

from msgspec import Struct

from compatgate.errors import CompatgateError, Unavailable, quote_error
from compatgate.kit import clock

CHECK_SECONDS = 0.25
"""Maximum age of the latest look, in seconds."""
PATIENCE_SECONDS = 1.0
"""Maximum wait of a request for a look, and silence of the database, in seconds."""
CHANGE_SECONDS = 30.0
"""Maximum time to read a changed matrix, in seconds."""
_SLICE_SECONDS = 0.25
_IDLE_SECONDS = 1.0
_RETRY_SECONDS = 1.0
_log = logging.getLogger("compatgate.database")
Look = Callable[[Callable[[], None]], None]
"""Reads the database; calls its argument once the database has answered, before it reads more."""


class Outage(Struct, frozen=True):
    """The absence of the database: since when, and why."""

    since: datetime
    reason: str


class DatabaseWatch:
    """The thread that looks at the database; any number of threads may ask it.

    Args:
        look: raises `CompatgateError` if the database does not answer.
        confirmed_at: when the database last confirmed what is in memory.
    """

    def __init__(self, look: Look, confirmed_at: datetime) -> None:
        self._look = look
        self._changed = threading.Condition()
        self._asked = False
        self._ended = False
        self._begun = self._done = self._told = 0
        self._began: float | None = None
        self._heard = False
        self._began_at = clock.now()
        self._failure: Outage | None = None
        self._checked = float("-inf")
        self.begin_with(confirmed_at)

    def begin_with(self, confirmed_at: datetime) -> None:
        """State when the database last confirmed what is in memory."""
        age = max(0.0, (clock.now() - confirmed_at).total_seconds())
        self._confirmed = time.monotonic() - age

    def start(self) -> None:
        """Start the thread, and wait for its first look, but not long."""
        threading.Thread(target=self._run, name="database-watch", daemon=True).start()
        self.check_now()

    def end(self) -> None:
        """End the thread after its present look."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    @property
    def confirmed_at(self) -> datetime:
        """Return when the database last confirmed what is in memory."""
        return clock.now() - timedelta(seconds=self.age_s())

    def age_s(self) -> float:
        """Return the seconds since the database last confirmed what is in memory."""
        return time.monotonic() - self._confirmed

    def is_recent(self) -> bool:
        """Return whether no look is due, or a look would not help: one runs, or an outage."""
        if time.monotonic() - self._checked < CHECK_SECONDS:
            return True
        return self._began is not None or self._failure is not None

    def check(self) -> None:
        """Wait for a look if one is due; never longer than `PATIENCE_SECONDS`."""
        if not self.is_recent():
            self.check_now()

    def check_now(self, seconds: float = PATIENCE_SECONDS) -> bool:
        """Wait for a look that begins now, and return whether it ended; not during an outage.

        Args:
            seconds: longest wait; a silent database ends it after `PATIENCE_SECONDS`.
        """
        end = time.monotonic() + seconds
        with self._changed:
            if self.outage() is not None:
                return False
            wanted = self._begun + 1
            self._asked = True
            self._changed.notify_all()
            while self._done < wanted and not self._ended and self.outage() is None:
                left = end - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(min(left, _SLICE_SECONDS))
            silence = self.outage() if self._failure is None else None
            if silence is not None and self._told != self._begun:
                self._told = self._begun
                _log.error("the database is unavailable: %s", silence.reason)
            return self._done >= wanted

    def expire(self) -> None:
        """Make a look due."""
        self._checked = float("-inf")

    def outage(self) -> Outage | None:
        """Return the outage, from memory; None: the database answers."""
        failure, began = self._failure, self._began
        if failure is not None or began is None:
            return failure
        silent = time.monotonic() - began
        if silent > (CHANGE_SECONDS if self._heard else PATIENCE_SECONDS):
            return Outage(self._began_at, f"the database has not answered for {silent:.0f} seconds")
        return None

    def is_silent(self) -> bool:
        """Return whether the database neither answers nor refuses."""
        began = self._began
        if began is None or self._heard:
            return False
        return time.monotonic() - began > PATIENCE_SECONDS

    def refusal(self) -> CompatgateError | None:
        """Return the error for whatever needs the database itself; None: it answers."""
        outage = self.outage()
        if outage is None:
            return None
        since = clock.readable(outage.since)
        return Unavailable(
            f"the database has been unavailable since {since}, so nothing was read or changed:"
            f" {outage.reason}",
            field="database",
            hint="retry when the database is back; the gate still answers questions, see /readyz",
        )

    def _run(self) -> None:
        while self._wait():
            try:
                self._look(self._hear)
            except CompatgateError as error:
                self._conclude(error.problem)
            except Exception as error:
                if self._failure is None:
                    _log.exception("looking at the database failed")
                self._conclude(f"looking at the database failed: {quote_error(error)}")
            else:
                self._conclude(None)

    def _wait(self) -> bool:
        """Wait until a look is due, and note its beginning; False: the watch has ended."""
        pause = _IDLE_SECONDS if self._failure is None else _RETRY_SECONDS
        with self._changed:
            self._changed.wait_for(lambda: self._asked or self._ended, pause)
            if self._ended:
                return False
            self._asked, self._heard = False, False
            self._began_at = clock.now()
            self._begun += 1
            self._began = time.monotonic()
            return True

    def _hear(self) -> None:
        self._heard = True

    def _conclude(self, failure: str | None) -> None:
        with self._changed:
            began, before = self._began or time.monotonic(), self._failure
            if failure is None:
                self._checked = self._confirmed = began
                self._failure = None
            else:
                since = before.since if before else self._began_at
                self._failure = Outage(since, failure)
            self._began = None
            self._done = self._begun
            self._changed.notify_all()
        if failure is not None and before is None and self._told != self._begun:
            _log.error("the database is unavailable: %s", failure)
        elif failure is None and (before is not None or self._told == self._begun):
            since = before.since if before is not None else self._began_at
            _log.warning("the database is back; it was away since %s", clock.iso(since))
