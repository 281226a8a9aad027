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
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
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
from compatgate.kit.database.watch import CHANGE_SECONDS, DatabaseWatch, Outage
from compatgate.service.access.tokens.repository import KnownToken, known_tokens
from compatgate.service.gate.decisions.last_known import FORMAT, LastKnown, SnapshotFile
from compatgate.service.matrix.snapshots.reader import Snapshots, make_current_payload
from compatgate.service.runs.evidence import evidence

if TYPE_CHECKING:
    from compatgate.kit.database.sqlite import FileIdentity
    from compatgate.service.access.tokens.service import Tokens

PATIENCE_SECONDS = 2
"""Maximum wait of the watching thread for a connection or a lock."""
MAX_STALE = timedelta(hours=24)
_TOKENS_SECONDS = 1.0
"""Maximum age of the known tokens; a revoked token is refused after that."""
_WRITE_SECONDS = 2.0
"""Least time between two writes of the snapshot's file."""
_CONFIRM_SECONDS = 10.0
_MOMENT_SECONDS = 0.25
"""Wait of the decision log for a look before decisions go to the spool."""
_SILENT_LOOKS = 3
"""Seconds of silence after which connections are cut, seen one by one."""
_log = logging.getLogger("compatgate.gate")
_encode = msgspec.json.Encoder(order="sorted").encode


class OutageOptions(Struct, frozen=True):
    """Options of a replica for outages: its files, and the maximum age of its snapshot.

    Attributes:
        max_stale: greatest age of a snapshot to decide on while the database is unavailable.
        file: identity of the SQLite file; None: PostgreSQL.
        is_checked: the schema of the database is known to be right.
    """

    folder: Path
    max_stale: timedelta = MAX_STALE
    file: FileIdentity | None = None
    is_checked: bool = True


class Degraded(Struct, frozen=True):
    """The state in which a gate decides without its database.

    Attributes:
        snapshot_age_s: seconds since the database last confirmed the snapshot.
        is_readable: the database still answers, but stores no decisions.
    """

    since: datetime
    snapshot_age_s: float
    reason: str
    without: str = "the database"
    is_readable: bool = False

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
        self._schema: str | None = None
        self.file = SnapshotFile(options.folder, database.shown)
        self.watch = DatabaseWatch(self._look, confirmed_at)
        self._tokens_read = float("-inf")
        self._tokens_wanted = True
        self._known: tuple[KnownToken, ...] | None = None
        self._known_digest = ""
        self._state = self._written = ""
        self._wrote = self._noted = float("-inf")
        self._writer = ThreadPoolExecutor(1, "state")
        self._writing: Future[object] | None = None
        database.outage = self.watch.refusal
        database.is_silent = self.watch.is_silent
        database.look = self._look_soon
        snapshots.keeper = self
        tokens.keeper = self

    def start(self) -> None:
        """Start to watch; without the database, use the latest of what memory and file have."""
        self.watch.start()
        threading.Thread(target=self._cut_when_silent, name="outages", daemon=True).start()
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

    def check(self) -> None:
        """Look at the database if a look is due; wait a moment at most."""
        self.watch.check()

    def _look_soon(self) -> None:
        """Look at the database, as another one could not write to it; wait a moment at most.

        So who hears of an outage from the log finds that changes are refused, too.
        """
        self.watch.check_now(_MOMENT_SECONDS)

    def check_now(self) -> bool:
        """Look at the database and its tokens, and return whether that was done in a moment."""
        self._tokens_wanted = True
        return self.watch.check_now()

    def follow_change(self) -> None:
        """Wait until a change that this process has made is in memory."""
        self._tokens_wanted = True
        self.watch.check_now(CHANGE_SECONDS)

    def expire(self) -> None:
        """Make a look at the database due."""
        self.watch.expire()

    def is_recent(self) -> bool:
        """Return whether memory is recent enough to answer without a look at the database."""
        return self.watch.is_recent()

    @property
    def schema(self) -> str | None:
        """Return the schema of the database at the latest look; None: not known yet."""
        return self._schema

    def degraded(self) -> Degraded | None:
        """Return the state without the database, from memory; None: the database answers."""
        outage = self.watch.outage()
        if outage is None:
            return None
        return Degraded(outage.since, self._age_s(), outage.reason)

    def describe_log(self, away: tuple[datetime, str] | None) -> Degraded | None:
        """Return the state of a gate that reads its database, and whose log cannot write."""
        return None if away is None else Degraded(away[0], self._age_s(), away[1], is_readable=True)

    def _age_s(self) -> float:
        """Return the age of the snapshot, as it is shown."""
        return round(max(0.0, self.watch.age_s()), 1)

    def is_away(self) -> bool:
        """Return whether the database is unavailable."""
        return self.watch.outage() is not None

    def require_usable(self) -> None:
        """Check that the snapshot in memory is recent enough to decide on."""
        outage = self.watch.outage()
        if outage is not None and self.watch.age_s() > self._max_stale.total_seconds():
            raise self._too_stale(outage)

    def _too_stale(self, outage: Outage) -> Unavailable:
        age, most = self.watch.age_s(), self._max_stale.total_seconds()
        limit = (
            f"the limit is {describe_seconds(most)}" if most else "--max-stale 0 allows no decision"
        )
        return Unavailable(
            f"the database is unavailable ({outage.reason}) and confirmed the snapshot"
            f" {describe_seconds(age)} ago; {limit}",
            field="database",
            hint="bring the database back; serve --max-stale sets the limit",
        )

    def _look(self, heard: Any) -> None:
        """Read what is new; called in the watching thread alone."""
        if not self._is_checked:
            if (upgrade := prepare_to_serve(self._database)) is not None:
                _log.warning("%s", upgrade.sentence)
            self._is_checked = True
        began, moment = time.monotonic(), clock.now()
        try:
            self._read(began, heard)
        except Exception as error:
            if not isinstance(error, CompatgateError):  # a newer program's content explains it
                tables.refuse_newer(self._database.shown, self._schema)
            raise
        self._keep(moment)

    def _read(self, began: float, heard: Any) -> None:
        """Bring snapshot and tokens into memory."""
        wanted, self._tokens_wanted = self._tokens_wanted, False  # before the read, not after it
        with self._database.reading() as session:
            self._schema = tables.version_of(session)
            latest = evidence.latest_state(session)
            known: tuple[KnownToken, ...] | None = None
            if wanted or began - self._tokens_read >= _TOKENS_SECONDS:
                known = tuple(known_tokens(session))
            heard()
            self._require_matrix(latest[0])
            if known is not None:
                self._know(known)
                self._tokens_read = began
            self._snapshots.take(session, *latest)

    def _require_matrix(self, revision: int) -> None:
        """Never replace a matrix by the nothing of a database that was emptied."""
        before = self._snapshots.known_revision()
        if before and not revision:
            raise Unavailable(
                f"the database is empty, but had matrix revision {before}",
                field="database",
                hint="restore a backup; or restart with an empty matrix: serve --start-empty",
            )

    def _know(self, known: tuple[KnownToken, ...]) -> None:
        self._known, self._known_digest = known, _digest(known)
        self._tokens.know(known)

    def _keep(self, moment: datetime) -> None:
        """Have the state written if it is new, or its confirmation if that is due."""
        if self._writing is not None and not self._writing.done():
            return
        snapshot = self._snapshots.known()
        if snapshot is None or self._known is None:
            return
        state = ".".join(map(str, (*snapshot.state, self._known_digest)))
        present = time.monotonic()
        work: Callable[[str, datetime], object]
        if state != self._written and present - self._wrote >= _WRITE_SECONDS:
            work, self._wrote = self._write, present
        elif state == self._written and present - self._noted >= _CONFIRM_SECONDS:
            work = self.file.adopt
        else:
            return
        self._noted = present
        with suppress(RuntimeError):  # this process ends, or the system has no threads left
            self._writing = self._writer.submit(work, state, moment)

    def _write(self, state: str, moment: datetime) -> None:
        """Write the file, from the database's present content; called in the writing thread."""
        if self.file.adopt(state, moment):
            self._written = state
            return
        snapshot, known = self._snapshots.known(), self._known
        if snapshot is None or known is None:
            return
        try:
            with self._database.reading() as session:
                if evidence.latest_state(session) != snapshot.state:
                    return  # the next look writes it
                payload = make_current_payload(session, snapshot)
        except Unavailable:
            return
        content = LastKnown(
            FORMAT, self._database.shown, moment, snapshot.evidence, _without_use(known), payload
        )
        if self.file.write(content, state):
            self._written = state

    def close(self) -> None:
        """End the threads, and close the connections."""
        self._ended.set()
        self.watch.end()
        self._writer.shutdown(wait=False, cancel_futures=True)
        self._database.close()


def _without_use(known: Iterable[KnownToken]) -> tuple[KnownToken, ...]:
    """Return the tokens without the time of their last use, which changes all the time."""
    return tuple(replace(one, token=replace(one.token, last_used_at=None)) for one in known)


def _digest(known: tuple[KnownToken, ...]) -> str:
    return hashlib.sha256(_encode(_without_use(known))).hexdigest()[:16]
