"""Lists of documents by filter, a page at a time, ordered by name."""

from __future__ import annotations

from datetime import date
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, Select, exists, or_, select
from sqlalchemy.orm import Session

from compatgate.core.matrix import ANY_TARGET
from compatgate.documents.specs import Kind
from compatgate.store.documents import MODELS, Model, columns, stored
from compatgate.store.models import Entry, Pool, Target, TargetUse, Waiver
from compatgate.store.paging import DEFAULT, Page, page
from compatgate.store.rows import PoolRow, Stored


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
    query = columns(Target)
    if label:
        query = query.where(Target.labels.contains(f" {label} ", autoescape=True))
    if gpu or driver:
        pool = exists().where(Pool.target == Target.name)
        pool = pool.where(Pool.gpu == gpu) if gpu else pool
        query = query.where(pool.where(Pool.driver == driver) if driver else pool)
    return _page(session, "Target", _search(query, Target, search), cursor, limit)


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
    query = columns(Entry)
    if target:
        query = query.where(_concerns("Entry", target))
    if status:
        query = query.where(Entry.status == status)
    if component:
        query = query.where(Entry.components.contains(f" {component} ", autoescape=True))
    return _page(session, "Entry", _search(query, Entry, search), cursor, limit)


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
    query = columns(Waiver)
    if target:
        query = query.where(_concerns("Waiver", target))
    if owner:
        query = query.where(Waiver.owner == owner)
    if active_on:
        query = query.where(Waiver.expires >= active_on.isoformat())
    return _page(session, "Waiver", _search(query, Waiver, search), cursor, limit)


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


def _concerns(kind: Kind, target: str) -> ColumnElement[bool]:
    return (
        exists()
        .where(TargetUse.kind == kind, TargetUse.name == MODELS[kind].name)
        .where(or_(TargetUse.target == target, TargetUse.target == ANY_TARGET))
    )


def _search(query: Select[Any], model: Model, text: str | None) -> Select[Any]:
    return query.where(model.name.icontains(text, autoescape=True)) if text else query


def _page(
    session: Session, kind: Kind, query: Select[Any], cursor: str | None, limit: int
) -> Page[Stored]:
    make = partial(stored, kind)
    return page(session, query, MODELS[kind].name, make, cursor=cursor, limit=limit)
