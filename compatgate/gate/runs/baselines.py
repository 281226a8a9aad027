"""Baselines as users see them: looked at, and approved."""

from __future__ import annotations

from typing import Any

from compatgate.store import audit, baselines, clock
from compatgate.store.baselines import Key
from compatgate.store.database import Database
from compatgate.store.paging import Page
from compatgate.store.run_rows import BaselineRow


class BaselineService:
    """The baselines of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def list(self, **filters: Any) -> Page[BaselineRow]:
        """Versions, newest first; filters of `compatgate.store.baselines.list_baselines`."""
        with self._database.reading() as session:
            return baselines.list_baselines(session, **filters)

    def show(self, number: int) -> BaselineRow:
        """A version.

        Raises:
            NotFound: there is none of that id.
        """
        with self._database.reading() as session:
            return baselines.find(session, number)

    def propose(self, key: Key, body: dict[str, Any], *, by: str) -> BaselineRow:
        """Propose a version, or renew the one that is proposed already."""
        with self._database.writing() as session:
            number = baselines.propose(session, key, body, by=by, at=clock.now())
            return baselines.find(session, number)

    def approve(self, number: int, *, by: str) -> BaselineRow:
        """Make a proposed version the one that runs are judged against.

        Raises:
            NotFound: there is none of that id.
            Conflict: it is not proposed any more.
        """
        now = clock.now()
        with self._database.writing() as session:
            row = baselines.approve(session, number, by=by, at=now)
            subject = f"{row.workload} {row.metric} on {row.sku}"
            audit.append(
                session,
                at=now,
                actor=by,
                action="baseline.approve",
                subject=subject,
                detail={"id": row.id, "version": row.version, "family": row.family},
            )
            return row
