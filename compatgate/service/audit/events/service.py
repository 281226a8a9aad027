"""List decisions and audit records, and verify the audit chain."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, time, timedelta
from typing import Any

from compatgate.errors import CompatgateError
from compatgate.kit import clock
from compatgate.kit.database.database import Database
from compatgate.kit.database.tables import Page
from compatgate.service.audit.events import repository as audit
from compatgate.service.audit.events.schemas import AuditBody, ChainBody
from compatgate.service.gate.decisions import decision_counts
from compatgate.service.gate.decisions import repository as decisions
from compatgate.service.gate.decisions.anchors import append_anchor
from compatgate.service.gate.decisions.decision_counts import BarCounts, DeniedVerdict
from compatgate.service.gate.questions.schemas import DecisionBody
from compatgate.service.recovery.chain.verification import append_seal, verify_chain


class History:
    """The decisions and audit records of a database, read only."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def list_decisions(self, **filters: Any) -> Page[DecisionBody]:
        """Return decisions, newest first; filters of `list_decisions`."""
        with self._database.reading() as session:
            return decisions.list_decisions(session, **filters)

    def show_decision(self, number: int) -> DecisionBody:
        """Return one decision."""
        with self._database.reading() as session:
            return decisions.show_decision(session, number)

    def find_verdict_ids(self, beginning: str, *, limit: int) -> list[str]:
        """Return the ids of verdicts that begin with a text."""
        with self._database.reading() as session:
            return decisions.find_verdict_ids(session, beginning, limit=limit)

    def read_verdicts(self, ids: Collection[str]) -> dict[str, dict[str, Any]]:
        """Return the verdicts of these ids as first given; missing ones are left out."""
        with self._database.reading() as session:
            return decisions.read_bodies(session, sorted(set(ids)))

    def count_bars(
        self,
        edges: Sequence[datetime],
        *,
        texts: Mapping[str, str | None],
        verdict_ids: Collection[str] | None = None,
    ) -> BarCounts:
        """Count decisions between moments; arguments of `count_bars` of the repository."""
        with self._database.reading() as session:
            return decision_counts.count_bars(session, edges, texts=texts, verdict_ids=verdict_ids)

    def decisions_per_day(self, days: int, *, target: str | None = None) -> BarCounts:
        """Return decisions per day of the last days in UTC, 1 to 366, with today and empty days."""
        today = datetime.combine(clock.today(), time(), UTC)
        back = range(min(max(days, 1), 366) - 1, -2, -1)
        edges = [today - timedelta(days=n) for n in back]
        with self._database.reading() as session:
            return decision_counts.count_bars(session, edges, target=target)

    def stopped_per_target(self, days: int) -> dict[str, int]:
        """Return the number of denied decisions of the last days, by target."""
        since = clock.now() - timedelta(days=days)
        with self._database.reading() as session:
            return decision_counts.count_stopped_by_target(session, since)

    def list_denied(self, since: datetime, until: datetime, *, limit: int) -> list[DeniedVerdict]:
        """Return the denied verdicts of a time, the most frequent first."""
        with self._database.reading() as session:
            return decision_counts.list_denied_verdicts(session, since, until, limit=limit)

    def list_audit(self, **filters: Any) -> Page[AuditBody]:
        """Return links of the chain, newest first; filters of `list_records`."""
        with self._database.reading() as session:
            return audit.list_records(session, **filters)

    def verify(self, *, expected_head: str | None = None, full: bool = True) -> ChainBody:
        """Verify the chain and the rows that it covers, and seal what is in order."""
        with suppress(CompatgateError), self._database.writing() as session:
            append_anchor(session, {})  # so that the head covers what was decided until now
        with self._database.reading() as session:
            verified = verify_chain(session, expected_head=expected_head, full=full)
        if verified.state is not None:
            with suppress(CompatgateError), self._database.writing() as session:
                append_seal(session, verified)  # without it, the next one reads more
        return verified.report
