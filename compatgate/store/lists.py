"""Lists of documents by filter, a page at a time, ordered by name."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, exists, or_, select
from sqlalchemy.orm import Session

from compatgate.core.matrix import ANY_TARGET
from compatgate.documents.specs import Kind
from compatgate.store.documents import MODELS, columns, stored
from compatgate.store.models import Entry, Pool, Target, TargetUse, Waiver
from compatgate.store.paging import DEFAULT, Page, page
from compatgate.store.rows import PoolRow, Stored

_Filter = ColumnElement[bool] | None
"""None: not asked for."""


def list_targets(
    session: Session,
    *,
    label: str | None = None,
    gpu: str | None = None,
    driver: str | None = None,
    search: str | None = None,
    cursor: str | None = None,
    limit: int = DEFAULT,
) -> Page[Stored]:
    """Targets.

    Args:
        session: to read from.
        label: ``tier=prod``.
        gpu: that some pool has, as written.
        driver: that some pool has, as written.
        search: part of the name, in any case.
        cursor: of the page.
        limit: at most so many.
    """
    has = exists().where(Pool.target == Target.name)
    has = has.where(Pool.gpu == gpu) if gpu else has
    has = has.where(Pool.driver == driver) if driver else has
    wanted = (_word(Target.labels, label), has if gpu or driver else None)
    return _page(session, "Target", wanted, search, cursor, limit)


def list_entries(
    session: Session,
    *,
    target: str | None = None,
    status: str | None = None,
    component: str | None = None,
    search: str | None = None,
    cursor: str | None = None,
    limit: int = DEFAULT,
) -> Page[Stored]:
    """Entries.

    Args:
        session: to read from.
        target: that the entry concerns, by name or by ``*``.
        status: ``candidate``, ``blessed``, ``deprecated`` or ``revoked``.
        component: canonical name of one that it constrains.
        search: part of the name, in any case.
        cursor: of the page.
        limit: at most so many.
    """
    wanted = (
        _concerns("Entry", target),
        Entry.status == status if status else None,
        _word(Entry.components, component),
    )
    return _page(session, "Entry", wanted, search, cursor, limit)


def list_waivers(
    session: Session,
    *,
    target: str | None = None,
    owner: str | None = None,
    active_on: date | None = None,
    search: str | None = None,
    cursor: str | None = None,
    limit: int = DEFAULT,
) -> Page[Stored]:
    """Waivers.

    Args:
        session: to read from.
        target: that the waiver concerns, by name or by ``*``.
        owner: who answers for it.
        active_on: those that have not ended before this day.
        search: part of the name, in any case.
        cursor: of the page.
        limit: at most so many.
    """
    wanted = (
        _concerns("Waiver", target),
        Waiver.owner == owner if owner else None,
        Waiver.expires >= active_on.isoformat() if active_on else None,
    )
    return _page(session, "Waiver", wanted, search, cursor, limit)


def list_pools(
    session: Session,
    *,
    target: str | None = None,
    gpu: str | None = None,
    driver: str | None = None,
    cursor: str | None = None,
    limit: int = DEFAULT,
) -> Page[PoolRow]:
    """Pools of all targets, ordered by target and name; filters as `list_targets`."""
    query = select(Pool.target, Pool.name, Pool.gpu, Pool.driver, Pool.os, Pool.cpu, Pool.count)
    for column, value in ((Pool.target, target), (Pool.gpu, gpu), (Pool.driver, driver)):
        if value:
            query = query.where(column == value)
    return page(
        session,
        query,
        (Pool.target, Pool.name),
        lambda row: PoolRow(*row),
        cursor=cursor,
        limit=limit,
    )


def _concerns(kind: Kind, target: str | None) -> _Filter:
    if not target:
        return None
    return (
        exists()
        .where(TargetUse.kind == kind, TargetUse.name == MODELS[kind].name)
        .where(or_(TargetUse.target == target, TargetUse.target == ANY_TARGET))
    )


def _word(column: Any, word: str | None) -> _Filter:
    """A whole word of a column that holds several, with a space on either side of each."""
    found: _Filter = column.contains(f" {word} ", autoescape=True) if word else None
    return found


def _page(
    session: Session,
    kind: Kind,
    wanted: Iterable[_Filter],
    search: str | None,
    cursor: str | None,
    limit: int,
) -> Page[Stored]:
    """What all filters that were given let through, ordered by name."""
    name = MODELS[kind].name
    query = columns(MODELS[kind]).where(*(one for one in wanted if one is not None))
    if search:
        query = query.where(name.icontains(search, autoescape=True))
    return page(session, query, name, partial(stored, kind), cursor=cursor, limit=limit)
