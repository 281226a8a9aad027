"""Store batches in the spool while they cannot be written, and have a courier deliver them.

The spool is in use from a write that failed until the database is back and has every batch. The
log of a far gate has no database: its spool is always in use, and the courier calls the central
gate.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from msgspec import Struct

from compatgate.errors import CompatgateError, Unavailable
from compatgate.kit import clock
from compatgate.service.gate.decisions.batch_store import Delivery
from compatgate.service.gate.decisions.batches import DecisionBatch, WriterChain
from compatgate.service.gate.decisions.delivery import Courier, Destination, Row
from compatgate.service.gate.decisions.spool import Spool, SpoolOptions

_JOIN_SECONDS = 1.0
"""Wait of a batch for the destination once nearly everything is delivered."""
_FORGET_SECONDS = 3600.0
"""After this time a verdict is sent again: the destination may have archived it."""
_log = logging.getLogger("compatgate.gate")


class LogState(Struct, frozen=True):
    """The decision log of a process.

    Attributes:
        degraded: in the spool, as the database is unavailable.
        size: bytes of the spool; 0: there is none.
        set_aside: spools whose chain is forked: nobody delivers their decisions.
    """

    degraded: bool = False
    since: datetime | None = None
    reason: str | None = None
    batches: int = 0
    used: int = 0
    size: int = 0
    oldest: datetime | None = None
    set_aside: int = 0


class Spooling:
    """The spool of a log with its courier; both continue the log's chain.

    ``returned``: called when the destination is back and has everything.
    """

    def __init__(
        self,
        options: SpoolOptions,
        destination: Destination,
        chain: WriterChain,
        returned: Callable[[], None],
    ) -> None:
        self._destination = destination
        self._chain = chain
        self._returned = returned
        self._verdicts: set[str] = set()
        self._forgotten = time.monotonic()
        self._placing = threading.Lock()
        self._outage: tuple[datetime, str] | None = None
        self._spool = Spool(options, destination.owner)
        try:
            self._spool.open()
        except Unavailable as error:
            _log.warning("no decision can be spooled: %s", error)
        self._courier = Courier(destination, self._spool, self._resume, self._set_aside)

    @property
    def is_in_use(self) -> bool:
        """Return whether batches go to the spool."""
        return self._outage is not None or not self._destination.is_direct

    @property
    def outage(self) -> tuple[datetime, str] | None:
        """Return since when and why a destination that is written to directly is away."""
        return self._outage

    @property
    def state(self) -> LogState:
        """Return where decisions are logged; never wait."""
        spool, outage = self._spool, self._outage
        since, reason = outage or (None, None)
        return LogState(
            outage is not None,
            since,
            reason,
            spool.batches,
            spool.used,
            spool.size,
            spool.oldest,
            spool.count_aside(),
        )

    def wait_for_end(self) -> None:
        """Wait a moment for the end of a delivery that is near.

        A spool that is always in use is waited for when it is half full: its file begins anew once
        it is empty.
        """
        if self._destination.is_direct or self._spool.used > self._spool.size // 2:
            self._courier.wait_if_nearly_done(_JOIN_SECONDS)

    def place(
        self,
        close: Callable[[], Sequence[Row]],
        in_doubt: DecisionBatch | None = None,
        why: BaseException | None = None,
    ) -> bool:
        """Store decisions in the spool; return False if it is no longer in use.

        Args:
            close: closes their batch to further decisions, and returns them.
            in_doubt: the same as a value; the destination may have it.
            why: the error for which they come here.
        """
        with self._placing:
            if why is not None:
                self._begin_outage(why)
            if not self.is_in_use:
                return False
            rows = close()
            if in_doubt is not None:
                self._append_doubtful(in_doubt, rows)
            else:
                for part in self._destination.divide(rows, self._known_verdicts()):
                    self._append(part)
        self._courier.wake_if_settled()
        return True

    def _append_doubtful(self, made: DecisionBatch, rows: Sequence[Row]) -> None:
        """Store a batch unchanged, with every verdict: the destination has all of it or nothing."""
        try:
            self._append_made(made, {one.verdict_id: body for one, body in rows})
        except BaseException:
            self._chain.begin()
            raise

    def _append(self, rows: Sequence[Row]) -> None:
        known = self._verdicts
        bodies = {one.verdict_id: body for one, body in rows if one.verdict_id not in known}
        self._append_made(self._chain.make([decision for decision, _ in rows], bodies), bodies)

    def _append_made(self, made: DecisionBatch, bodies: dict[str, str]) -> None:
        self._spool.append(Delivery(made, bodies, late=True))
        self._chain.take(made)
        self._verdicts.update(bodies)

    def _known_verdicts(self) -> set[str]:
        """Return the ids of the verdicts that the destination has or gets."""
        if time.monotonic() - self._forgotten > _FORGET_SECONDS:
            self._verdicts.clear()
            self._forgotten = time.monotonic()
        return self._verdicts

    def _begin_outage(self, why: BaseException) -> None:
        if self.is_in_use:
            return
        stated = why.problem if isinstance(why, CompatgateError) else ""
        reason = stated or self._destination.explain(why)
        self._outage = (clock.now(), reason)
        self._verdicts.clear()
        _log.warning("decisions go to the spool: %s", reason)
        self._courier.wake()

    def _resume(self) -> bool:
        """Return to writing directly, unless there is more to deliver."""
        with self._placing:
            if self._spool.batches:
                return False
            if self._outage is not None:
                self._returned()
                self._outage = None
                _log.warning("the database is back, and has all decisions")
        return True

    def _set_aside(self) -> Path:
        """Set the spool aside, and become another writer: the chain is forked."""
        with self._placing:
            place = self._spool.set_aside()
            self._chain.begin()
            self._verdicts.clear()
        return place

    def check(self) -> None:
        """Raise `Unavailable` if the spool cannot take a decision."""
        self._spool.check()

    def abandon(self) -> None:
        """Leave the spool to the process that this one was forked from."""
        self._spool.abandon()

    def stop(self, seconds: float) -> None:
        """Stop to deliver; what is not delivered stays in the spool."""
        self._courier.close(seconds)

    def close(self) -> None:
        """Close the spool and the destination."""
        self._spool.close()
        self._destination.close()
