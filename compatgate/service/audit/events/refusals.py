"""Note refused attempts in the audit chain, at most one link for each caller and minute.

A caller is a token, a person or a hook, and never an address, so nobody without a valid credential
adds a link. The first refusal is written at once; those of the same minute are counted, and the
count is the next link. Writing happens in a thread of its own: no request waits for it. If the
database is unavailable, the counts wait for it.
"""

from __future__ import annotations

import logging
import threading
import time

from msgspec import Struct

from compatgate.errors import CompatgateError
from compatgate.kit.database.database import Database
from compatgate.service.audit.events import repository as audit

WINDOW_S = 60.0
MAX_CALLERS = 1024
"""Callers that are counted apart; the refusals of more are counted together."""
_OTHERS = "others"
_LONGEST = 500
_log = logging.getLogger("compatgate.audit")


class _Waiting(Struct):
    """The refusals of a caller that are not written yet, and when the next link is due."""

    actor: str
    place: str
    reason: str
    due: float
    count: int = 0


class RefusalLog:
    """Counts refusals and writes them to the audit chain; safe for any number of threads."""

    def __init__(self, database: Database, window_s: float = WINDOW_S) -> None:
        self._database = database
        self._window_s = window_s
        self._callers: dict[str, _Waiting] = {}
        self._changed = threading.Condition()
        self._writing = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    def note(self, identity: str, actor: str, place: str, reason: str) -> None:
        """Count a refusal; never raise and never wait for the database."""
        present = time.monotonic()
        with self._changed:
            if self._closed:
                return
            if identity not in self._callers and len(self._callers) >= MAX_CALLERS:
                # Forget callers without a waiting refusal, whose minute is over.
                self._callers = {
                    key: one for key, one in self._callers.items() if one.count or one.due > present
                }
            if identity not in self._callers and len(self._callers) >= MAX_CALLERS:
                identity, actor = _OTHERS, _OTHERS
            found = self._callers.setdefault(identity, _Waiting(actor, place, reason, present))
            found.place, found.reason = place[:_LONGEST], reason[:_LONGEST]
            found.count += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="refusals", daemon=True)
                self._thread.start()
            self._changed.notify()

    def flush(self) -> None:
        """Write every count now, due or not; what is being written is written too."""
        with self._writing:  # what the thread has taken is written when this returns
            with self._changed:
                taken = self._take(float("inf"))
            self._write(taken)

    def close(self) -> None:
        """Write what waits, and stop."""
        with self._changed:
            self._closed = True
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._closed:
                    due = min(
                        (one.due for one in self._callers.values() if one.count), default=None
                    )
                    if due is not None and due <= time.monotonic():
                        break
                    self._changed.wait(due and due - time.monotonic())
                ends = self._closed
            with self._writing:
                with self._changed:
                    taken = self._take(float("inf") if ends else time.monotonic())
                self._write(taken)
            if ends:
                return

    def _take(self, until: float) -> list[tuple[str, _Waiting]]:
        present, taken = time.monotonic(), []
        for identity, one in self._callers.items():
            if one.count and one.due <= until:
                taken.append((identity, _Waiting(one.actor, one.place, one.reason, 0, one.count)))
                one.count, one.due = 0, present + self._window_s
        return taken

    def _write(self, taken: list[tuple[str, _Waiting]]) -> None:
        if not taken:
            return
        try:
            with self._database.writing() as session:
                for identity, one in taken:
                    detail = {"caller": identity, "reason": one.reason, "attempts": one.count}
                    audit.append(session, one.actor, "access.refused", one.place, detail)
        except CompatgateError as error:
            _log.warning("refused attempts are not in the audit log yet: %s", error.detail)
            with self._changed:
                for identity, one in taken:
                    if found := self._callers.get(identity):
                        found.count += one.count
