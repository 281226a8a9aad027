"""Looking back: decisions, the audit chain, and whether the chain holds."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from typing import Any

from compatgate.store import audit, clock, decision_days, decisions, denials, verify
from compatgate.store.database import Database
from compatgate.store.decision_days import Counted, DayRow
from compatgate.store.denials import DeniedRow
from compatgate.store.paging import Page
from compatgate.store.rows import AuditRow, DecisionRow
from compatgate.store.verify import ChainReport


class History:
    """What was decided and done; reading only."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def list_decisions(self, **filters: Any) -> Page[DecisionRow]:
        """Decisions, newest first; filters of `compatgate.store.decisions.list_decisions`."""
        with self._database.reading() as session:
            return decisions.list_decisions(session, **filters)

    def show_decision(self, number: int) -> DecisionRow:
        """One decision.

        Raises:
            NotFound: there is no such decision.
        """
        with self._database.reading() as session:
            return decisions.show(session, number)

    def decisions_per_day(self, days: int, *, target: str | None = None) -> Counted:
        """Decisions of the last days in UTC, today's included, each day there.

        Args:
            days: how many, 1 to 366.
            target: only decisions about it.
        """
        last = clock.today()
        wanted = [last - timedelta(days=n) for n in reversed(range(min(max(days, 1), 366)))]
        since = datetime.combine(wanted[0], time(), UTC)
        with self._database.reading() as session:
            found = decision_days.per_day(session, since, target=target)
        known = {row.day: row for row in found.days}
        return Counted(tuple(known.get(d) or DayRow(d) for d in wanted), found.complete)

    def stopped_per_target(self, days: int) -> dict[str, int]:
        """Decisions of the last days that did not allow what was asked, by target."""
        since = clock.now() - timedelta(days=days)
        with self._database.reading() as session:
            return decision_days.stopped_per_target(session, since)

    def most_denied(self, days: int, *, limit: int = 10) -> list[DeniedRow]:
        """Verdicts of the last days that did not allow, those given most often first."""
        since = clock.now() - timedelta(days=days)
        with self._database.reading() as session:
            return denials.most_denied(session, since, limit=limit)

    def list_audit(self, **filters: Any) -> Page[AuditRow]:
        """Links of the chain, newest first; filters of `compatgate.store.audit.list_records`."""
        with self._database.reading() as session:
            return audit.list_records(session, **filters)

    def verify(self, *, expected_head: str | None = None) -> ChainReport:
        """Check the chain and all that it vouches for."""
        with self._database.reading() as session:
            return verify.verify_chain(session, expected_head=expected_head)
