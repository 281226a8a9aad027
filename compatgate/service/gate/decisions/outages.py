"""Decide while the database is unavailable: watch it, and keep the last-known-good snapshot.

One thread looks at the database and brings the snapshot and the tokens into memory, which is all
that requests read. A second thread writes both to the replica's state folder. During an outage,
answers say ``degraded``, until the snapshot is older than the operator allows.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from compatgate.documents.quantities import describe_seconds
from compatgate.errors import CompatgateError, Unavailable
from compatgate.kit import clock
from compatgate.kit.database import tables
from compatgate.kit.database.database import Database
from compatgate.kit.database.opening import prepare_to_serve
from compatgate.kit.database.watch import CHANGE_SECONDS, DatabaseWatch
from compatgate.service.access.token_table import KnownToken, known_tokens
from compatgate.service.gate.decisions.heads import read_heads, refuse_lost
from compatgate.service.gate.decisions.last_known import FORMAT, LastKnown, SnapshotFile
from compatgate.service.matrix.snapshots.reader import Snapshots, make_current_payload
from compatgate.service.runs.evidence import evidence

if TYPE_CHECKING:
    from compatgate.kit.database.sqlite import FileIdentity
    from compatgate.service.access.tokens import Tokens

PATIENCE_SECONDS = 2
"""Maximum wait of the watching thread for a connection or a lock."""
MAX_STALE = timedelta(hours=24)
_TOKENS_SECONDS = 1.0
"""Maximum age of the known tokens; a revoked token is refused after that."""
_WRITE_SECONDS = 2.0
"""Time between two looks whether the snapshot's file is to be written."""
_CONFIRM_SECONDS = 10.0
_MOMENT_SECONDS = 0.25
"""Wait of the decision log for a look before decisions go to the spool."""
_SILENT_LOOKS = 3
"""Seconds of silence after which connections are cut, seen one by one."""
_log = logging.getLogger("compatgate.gate")
_encode = msgspec.json.Encoder(order="sorted").encode


class OutageOptions(Struct, frozen=True):
    """Options of a replica for outages: its files, and the greatest age of a snapshot it uses."""

    folder: Path
    max_stale: timedelta = MAX_STALE
    file: FileIdentity | None = None
    """Identity of the SQLite file; None: PostgreSQL."""
    is_checked: bool = True
    """Whether the schema of the database is known to be right."""


class Degraded(Struct, frozen=True):
    """The state in which a gate decides without its database; the age is that of a confirmation."""

    since: datetime
    snapshot_age_s: float
    reason: str
    without: str = "the database"
    is_readable: bool = False
    """Whether the database still answers, but stores no decisions."""

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "since": clock.iso(self.since),
            "snapshot_age_s": self.snapshot_age_s,
            "reason": self.reason,
        }

    @property
    def sentence(self) -> str:
        """Return the state as one sentence for people."""
        age = describe_seconds(self.snapshot_age_s)
        if self.is_readable:
            return f"the database stores no decisions, so they wait in the spool: {self.reason}"
        return f"decided without {self.without}, on a snapshot that is {age} old: {self.reason}"


class OutageKeeper:
    """Watches the database of a gate, and keeps what the gate needs without it."""

    def __init__(
        self,
        database: Database,
        snapshots: Snapshots,
        tokens: Tokens,
        options: OutageOptions,
        confirmed_at: datetime,
    ) -> None:
        self._database = Database(database.url, patience_s=PATIENCE_SECONDS)
        if options.file is not None:
            database.file.expect(options.file)
        self._database.file = database.file  # both see the same log
        self._database_of_gate = database
        self._ended = threading.Event()
        self._snapshots = snapshots
        self._tokens = tokens
        self._max_stale = options.max_stale
        self._is_checked = options.is_checked
        self.schema: str | None = None
        """Of the database at the latest look; None: not known yet."""
        self.file = SnapshotFile(options.folder, database.shown)
        self.watch = watch = DatabaseWatch(self._look, confirmed_at)
        self.check, self.expire, self.is_recent = watch.check, watch.expire, watch.is_recent
        self._tokens_read = float("-inf")
        self._tokens_wanted = True
        self._known: tuple[KnownToken, ...] | None = None
        self._known_digest = ""
        database.outage = watch.refusal
        database.is_silent = watch.is_silent
        # A log that cannot write looks first: who hears of an outage finds changes refused, too.
        database.look = lambda: watch.check_now(_MOMENT_SECONDS)
        snapshots.keeper = self
        tokens.keeper = self

    def start(self) -> None:
        """Start to watch; without the database, use the latest of what memory and file have."""
        self.watch.start()
        threading.Thread(target=self._cut_when_silent, name="outages", daemon=True).start()
        threading.Thread(target=self._write_state, name="state", daemon=True).start()
        if self.watch.outage() is None:
            return
        known = self.file.read()
        if known is None:
            return
        clock.never_before(known.confirmed_at)
        if self._known is None:
            self._know(known.tokens)
        if known.confirmed_at > self.watch.confirmed_at:
            self._snapshots.begin_with(known.snapshot(self._snapshots.facts))
            self.watch.begin_with(known.confirmed_at)

    def _cut_when_silent(self) -> None:
        """Cut the gate's connections to a silent server: its threads get an error, and go on.

        Several observations are needed, as this process may have been stopped itself.
        """
        seen = 0
        while not self._ended.wait(1.0):
            seen = seen + 1 if self.watch.is_silent() else 0
            if seen == _SILENT_LOOKS:
                self._database_of_gate.cut()

    def check_now(self) -> bool:
        """Look at the database and its tokens, and return whether that was done in a moment."""
        self._tokens_wanted = True
        return self.watch.check_now()

    def follow_change(self) -> None:
        """Wait until a change that this process has made is in memory."""
        self._tokens_wanted = True
        self.watch.check_now(CHANGE_SECONDS)

    def degraded(self, log_away: tuple[datetime, str] | None) -> Degraded | None:
        """Return the state without the database, from memory; None: it answers, and records.

        ``log_away``: since when and why the log of decisions cannot write to it.
        """
        outage = self.watch.outage()
        away = (outage.since, outage.reason) if outage is not None else log_away
        if away is None:
            return None
        age_s = round(max(0.0, self.watch.age_s()), 1)
        return Degraded(away[0], age_s, away[1], is_readable=outage is None)

    def is_away(self) -> bool:
        """Return whether the database is unavailable."""
        return self.watch.outage() is not None

    def require_usable(self) -> None:
        """Check that the snapshot in memory is recent enough to decide on."""
        outage, age = self.watch.outage(), self.watch.age_s()
        if outage is None or age <= (most := self._max_stale.total_seconds()):
            return
        limit = f"the limit is {describe_seconds(most)}"
        if not most:
            limit = "--max-stale 0 allows no decision"
        what = f"the database is unavailable ({outage.reason}) and confirmed the snapshot"
        hint = "bring the database back; serve --max-stale sets the limit"
        raise Unavailable(
            f"{what} {describe_seconds(age)} ago; {limit}", field="database", hint=hint
        )

    def _look(self, answered: Callable[[], None]) -> None:
        """Bring snapshot and tokens into memory; called in the watching thread alone."""
        if not self._is_checked:
            if (upgrade := prepare_to_serve(self._database)) is not None:
                _log.warning("%s", upgrade.sentence)
            self._is_checked = True
        began = time.monotonic()
        wanted, self._tokens_wanted = self._tokens_wanted, False  # before the read, not after it
        heads = read_heads(self._database.url)
        try:
            with self._database.reading() as session:
                self.schema = tables.version_of(session)
                latest = evidence.latest_state(session)
                known: tuple[KnownToken, ...] | None = None
                if wanted or began - self._tokens_read >= _TOKENS_SECONDS:
                    known = tuple(known_tokens(session))
                answered()
                refuse_lost(session.connection().exec_driver_sql, heads, self._database)
                before = self._snapshots.known_revision()
                if before and not latest[0]:  # nothing of an emptied database replaces a matrix
                    hint = "restore a backup; or restart with an empty matrix: serve --start-empty"
                    what = f"the database is empty, but had matrix revision {before}"
                    raise Unavailable(what, field="database", hint=hint)
                if known is not None:
                    self._know(known)
                    self._tokens_read = began
                self._snapshots.take(session, *latest)
        except Exception as error:
            if not isinstance(error, CompatgateError):  # a newer program's content explains it
                tables.refuse_newer(self._database.shown, self.schema)
            raise

    def _know(self, known: tuple[KnownToken, ...]) -> None:
        self._known_digest = hashlib.sha256(_encode(_without_use(known))).hexdigest()[:16]
        self._known = known
        self._tokens.know(known)

    def _write_state(self) -> None:
        """Write the file while the state is new, else its confirmation; in a thread of its own.

        The first state is written as soon as it is known: the database may soon be away.
        """
        written, noted = "", float("-inf")
        while not self._ended.wait(_WRITE_SECONDS if noted > 0 else _MOMENT_SECONDS):
            moment = self.watch.confirmed_at  # before the state: a later one may not be confirmed
            snapshot, known = self._snapshots.known(), self._known
            if snapshot is None or known is None:
                continue
            state = ".".join(map(str, (*snapshot.state, self._known_digest)))
            if state == written and time.monotonic() - noted < _CONFIRM_SECONDS:
                continue
            noted = time.monotonic()
            if self.file.adopt(state, moment):
                written = state
                continue
            try:
                with self._database.reading() as session:
                    if evidence.latest_state(session) != snapshot.state:
                        continue  # the next look brings it
                    payload = make_current_payload(session, snapshot)
            except Exception:  # noqa: S112 - the watch reports what is wrong with the database
                continue
            shown, tokens = self._database.shown, _without_use(known)
            content = LastKnown(FORMAT, shown, moment, snapshot.evidence, tokens, payload)
            if self.file.write(content, state):
                written = state

    def close(self) -> None:
        """End the threads, and close the connections."""
        self._ended.set()
        self.watch.end()
        self._database.close()


def _without_use(known: Iterable[KnownToken]) -> tuple[KnownToken, ...]:
    """Return the tokens without the time of their last use, which changes all the time."""
    return tuple(replace(one, token=replace(one.token, last_used_at=None)) for one in known)
