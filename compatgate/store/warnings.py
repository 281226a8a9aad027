"""Warnings on entries: opened by a run that failed, closed by one that passed."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime
from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.orm import Session

from compatgate.store.models import EntryWarning
from compatgate.store.run_rows import WarningRow

_COLUMNS = [getattr(EntryWarning, name) for name in WarningRow.__struct_fields__]


def opened(
    session: Session,
    *,
    entries: Collection[str] | None = None,
    suite: str | None = None,
    sku: str | None = None,
) -> Iterator[WarningRow]:
    """Warnings that are open, oldest first.

    Args:
        session: to read from.
        entries: only on these.
        suite: that failed.
        sku: on which.
    """
    query = select(*_COLUMNS).where(EntryWarning.closed_at.is_(None))
    query = query.where(EntryWarning.entry.in_(entries)) if entries is not None else query
    query = query.where(EntryWarning.suite == suite) if suite else query
    query = query.where(EntryWarning.sku == sku) if sku else query
    for found in session.execute(query.order_by(EntryWarning.id)):
        yield WarningRow(*found)


def open_one(session: Session, **values: Any) -> None:
    """Open a warning; ``values`` are those of `WarningRow`, without ``id``."""
    session.execute(insert(EntryWarning), [values])


def close(session: Session, ids: Collection[int], run: str, at: datetime) -> None:
    """Close warnings: a run has passed."""
    changed = update(EntryWarning).where(EntryWarning.id.in_(ids))
    session.execute(changed.values(closed_at=at, closed_by=run))
