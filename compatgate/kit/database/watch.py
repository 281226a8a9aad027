"""Look at the database in one thread, with deadlines; explain errors of its driver.

A request that needs a recent view asks the thread and waits a moment at most. Once an outage is
noticed nobody waits: the thread tries again by itself until the database is back. An outage is an
error of the database, or its silence: a stopped server neither answers nor refuses.
"""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct
from sqlalchemy.exc import ProgrammingError

from compatgate.errors import CompatgateError, Unavailable, quote_error
from compatgate.kit import clock

if TYPE_CHECKING:
    from compatgate.kit.database.database import Database

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


class Keeper(Protocol):
    """Looks at what a gate rests on in a thread of its own, and brings the news into memory.

    Requests read memory alone then: snapshots (`Snapshots.take`) and tokens (`Tokens.know`).
    """

    def check(self) -> None:
        """Look at the database if a look is due; wait a moment at most."""

    def check_now(self) -> bool:
        """Look at the database and its tokens, and return whether that was done in a moment."""

    def expire(self) -> None:
        """Make a look at the database due."""

    def follow_change(self) -> None:
        """Wait until a change that this process has made is in memory."""

    def is_recent(self) -> bool:
        """Return whether memory is recent enough to answer without a look at the database."""

    def is_away(self) -> bool:
        """Return whether the database is unavailable."""

    def require_usable(self) -> None:
        """Raise `Unavailable` if the snapshot is too old to decide on."""


class Outage(Struct, frozen=True):
    """The absence of the database: since when, and why."""

    since: datetime
    reason: str


class _Look:
    def __init__(self, number: int) -> None:
        self.number = number
        self.since = clock.now()
        self.began = time.monotonic()
        self.has_answer = False
        self.is_silence_logged = False

    def answer(self) -> None:
        self.has_answer = True


class DatabaseWatch:
    """The thread that looks at the database; any number of threads may ask it.

    ``look`` raises `CompatgateError` if the database does not answer.
    """

    def __init__(self, look: Look, confirmed_at: datetime) -> None:
        self._read = look
        self._changed = threading.Condition()
        self._present: _Look | None = None
        self._begun = 0  # number of the latest look
        self._wanted = 0  # number of the look that requests wait for
        self._failure: Outage | None = None  # of the latest look that ended
        self._checked = float("-inf")
        self._ended = False
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
        return self._present is not None or self._failure is not None

    def check(self) -> None:
        """Wait for a look if one is due; never longer than `PATIENCE_SECONDS`."""
        if not self.is_recent():
            self.check_now()

    def check_now(self, seconds: float = PATIENCE_SECONDS) -> bool:
        """Wait for a look that begins now, and return whether it ended; not during an outage.

        A silent database ends the wait after `PATIENCE_SECONDS`.
        """
        end = time.monotonic() + seconds
        with self._changed:
            if self.outage() is not None:
                return False
            wanted = self._wanted = self._begun + 1  # a look that runs may have missed a change
            self._changed.notify_all()
            while not self._is_over(wanted) and not self._ended and self.outage() is None:
                remaining = end - time.monotonic()
                if remaining <= 0:
                    break
                self._changed.wait(min(remaining, _SLICE_SECONDS))
            look, outage = self._present, self.outage()
            if outage is not None and look is not None and self._failure is None:
                if not look.is_silence_logged:
                    _log.error("the database is unavailable: %s", outage.reason)
                look.is_silence_logged = True
            return self._is_over(wanted)

    def _is_over(self, number: int) -> bool:
        present = self._present
        return self._begun >= number and (present is None or present.number > number)

    def expire(self) -> None:
        """Make a look due."""
        self._checked = float("-inf")

    def outage(self) -> Outage | None:
        """Return the outage, from memory; None: the database answers."""
        failure, look = self._failure, self._present
        if failure is not None or look is None:
            return failure
        silent_s = time.monotonic() - look.began
        if silent_s <= (CHANGE_SECONDS if look.has_answer else PATIENCE_SECONDS):
            return None
        return Outage(look.since, f"the database has not answered for {silent_s:.0f} seconds")

    def is_silent(self) -> bool:
        """Return whether the database neither answers nor refuses."""
        look = self._present
        if look is None or look.has_answer:
            return False
        return time.monotonic() - look.began > PATIENCE_SECONDS

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
        while (look := self._begin()) is not None:
            failure = None
            try:
                self._read(look.answer)
            except CompatgateError as error:
                failure = error.problem
            except Exception as error:
                if self._failure is None:
                    _log.exception("looking at the database failed")
                failure = f"looking at the database failed: {quote_error(error)}"
            self._conclude(look, failure)

    def _begin(self) -> _Look | None:
        """Wait until a look is due, and begin it; None: the watch has ended."""
        pause = _IDLE_SECONDS if self._failure is None else _RETRY_SECONDS
        with self._changed:
            self._changed.wait_for(lambda: self._wanted > self._begun or self._ended, pause)
            if self._ended:
                return None
            self._begun += 1
            self._present = _Look(self._begun)
            return self._present

    def _conclude(self, look: _Look, failure: str | None) -> None:
        with self._changed:
            before = self._failure
            since = before.since if before is not None else look.since
            if failure is None:
                self._checked = self._confirmed = look.began
                self._failure = None
            else:
                self._failure = Outage(since, failure)
            self._present = None
            self._changed.notify_all()
        was_logged = before is not None or look.is_silence_logged
        if failure is not None and not was_logged:
            _log.error("the database is unavailable: %s", failure)
        elif failure is None and was_logged:
            _log.warning("the database is back; it was away since %s", clock.iso(since))


class Failure(Struct, frozen=True):
    """The meaning of a driver's error."""

    verb: str
    hint: str


_RESTORE = "stop the gate and restore a backup: compatgate db restore FILE --force"
_DAMAGED = Failure("is damaged", f"compatgate doctor checks it; {_RESTORE}")
_FULL = Failure("has no room", "free space on its disk; nothing that was answered is lost")
_LOCKED = Failure(
    "is locked", "another program holds its lock: end it, or wait until its backup has ended"
)
_READ_ONLY = Failure("cannot be written", "check the owner, mode and mount of the file's folder")
_CLOSED = Failure("cannot be opened", "check that its folder exists, and its owner and mode")
_REFUSED = Failure("cannot be used", "check its schema and the user's rights")
_SILENT = Failure(
    "does not answer", "check that it runs, is reachable, has room and may be written"
)
_SQLITE = {
    "SQLITE_CORRUPT": _DAMAGED,
    "SQLITE_NOTADB": _DAMAGED,
    "SQLITE_FULL": _FULL,
    "SQLITE_BUSY": _LOCKED,
    "SQLITE_LOCKED": _LOCKED,
    "SQLITE_READONLY": _READ_ONLY,
    "SQLITE_CANTOPEN": _CLOSED,
}
"""By the primary result code, https://www.sqlite.org/rescode.html."""
_POSTGRESQL = {
    "53100": _FULL,
    "XX001": _DAMAGED,
    "XX002": Failure("is damaged", "REINDEX the index that the error names; else restore a backup"),
    "25006": Failure("cannot be written", "it is a standby or read-only: name its primary"),
    "28P01": Failure("refuses the user", "check the user's password"),
    "3D000": Failure("does not exist", "create it: createdb NAME"),
}
"""By SQLSTATE, https://www.postgresql.org/docs/current/errcodes-appendix.html."""


def explain_failure(database: Database, error: BaseException) -> Failure:
    """Return what an error of the driver, or of SQLAlchemy around it, means."""
    cause = getattr(error, "orig", None) or error
    if database.is_sqlite:
        if found := _explain_sqlite(str(database.url.database), cause):
            return found
    elif found := _POSTGRESQL.get(getattr(cause, "sqlstate", None) or ""):
        return found
    return _REFUSED if isinstance(error, ProgrammingError) else _SILENT


def _explain_sqlite(path: str, cause: BaseException) -> Failure | None:
    if isinstance(cause, OSError):
        return _FULL if cause.errno in (errno.ENOSPC, errno.EDQUOT) else None
    if not isinstance(cause, sqlite3.Error):
        return None
    name = "_".join(str(getattr(cause, "sqlite_errorname", "")).split("_")[:2])
    if name == "SQLITE_IOERR":  # also reported where the disk has no page left
        with suppress(OSError):
            disk = os.statvfs(os.path.dirname(path) or ".")
            if disk.f_bavail * disk.f_frsize < 64 * 1024:
                return _FULL
    return _SQLITE.get(name)
