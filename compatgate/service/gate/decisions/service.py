"""List decisions and verdicts, and count decisions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, time, timedelta
from typing import Any

import msgspec

from compatgate.errors import Conflict
from compatgate.kit import clock
from compatgate.kit.database.database import Database
from compatgate.kit.database.tables import Page
from compatgate.service.gate.decisions import decision_counts
from compatgate.service.gate.decisions import repository as decisions
from compatgate.service.gate.decisions.decision_counts import BarCounts, DeniedVerdict
from compatgate.service.gate.questions.schemas import DecisionBody


class Decisions:
    """The decisions of a database, read only."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def show_verdict(self, verdict_id: str) -> dict[str, Any]:
        """Return a verdict as first given."""
        with self._database.reading() as session:
            body = decisions.find_verdict(session, verdict_id)
        stored: dict[str, Any] = msgspec.json.decode(body)
        return stored

    def read_own(self, verdict_id: str) -> tuple[str, datetime | None]:
        """Return a verdict of this gate, and when it was last given; refuse a far gate's."""
        with self._database.reading() as session:
            stored = decisions.find_verdict(session, verdict_id)
            far = decisions.find_far_gate(session, verdict_id)
            confirmed = decisions.last_given_at(session, verdict_id)
        if far is not None:
            what = f"the far gate {far} gave this verdict, not this gate"
            hint = "a gate signs its own verdicts; ask this gate about the image by its digest"
            raise Conflict(what, field="id", value=verdict_id, hint=hint)
        return stored, confirmed

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
