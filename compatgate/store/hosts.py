"""Staging hosts as workers declared them, and the slots of them that runs have."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.orm import Session

from compatgate.store.models import Host, Slot
from compatgate.store.paging import DEFAULT, Page, page
from compatgate.store.run_rows import HostRow

_DECLARED = ("worker", "executor", "gpu", "driver", "slots", "health", "quiet")


def register(session: Session, declared: Sequence[dict[str, Any]], at: datetime) -> None:
    """Remember hosts as they are declared now, and that they were seen.

    Args:
        session: a writing one.
        declared: ``name`` and what `HostRow` has of a host; ``quiet`` is plain data.
        at: now.
    """
    for host in declared:
        values = {**host, "quiet": msgspec.json.encode(host["quiet"]).decode(), "seen_at": at}
        changed = update(Host).where(Host.name == host["name"]).values(**values)
        if session.execute(changed).rowcount == 0:  # type: ignore[attr-defined]
            session.execute(insert(Host), [{**values, "registered_at": at}])


def is_current(
    session: Session, declared: Sequence[dict[str, Any]], at: datetime, within: timedelta
) -> bool:
    """Whether all hosts are stored as they are declared, and were seen a moment ago."""
    known = {host.name: host for host in load(session, [host["name"] for host in declared])}
    return all(
        (stored := known.get(host["name"])) is not None
        and at - stored.seen_at < within
        and all(getattr(stored, name) == host[name] for name in _DECLARED)
        for host in declared
    )


def load(session: Session, names: Collection[str] | None = None) -> list[HostRow]:
    """Hosts by name; None: all."""
    query = _query()
    query = query.where(Host.name.in_(names)) if names is not None else query
    return [_row(found) for found in session.execute(query.order_by(Host.name))]


def list_hosts(
    session: Session,
    *,
    gpu: str | None = None,
    cursor: str | None = None,
    limit: int = DEFAULT,
) -> Page[HostRow]:
    """Hosts by name; ``gpu`` is the SKU of those wanted."""
    query = _query()
    query = query.where(Host.gpu == gpu) if gpu else query
    return page(session, query, Host.name, _row, cursor=cursor, limit=limit)


def _query() -> Any:
    busy = select(func.count()).where(Slot.host == Host.name).scalar_subquery()
    fields = [name for name in HostRow.__struct_fields__ if name != "busy"]
    return select(*(getattr(Host, name) for name in fields), busy.label("busy"))


def _row(found: Any) -> HostRow:
    values = dict(found._mapping)
    return HostRow(**{**values, "quiet": msgspec.json.decode(values["quiet"])})


def taken(session: Session, names: Collection[str]) -> dict[str, set[int]]:
    """The slots that runs have, by host."""
    found: dict[str, set[int]] = {name: set() for name in names}
    for host, slot in session.execute(select(Slot.host, Slot.slot).where(Slot.host.in_(names))):
        found[host].add(slot)
    return found


def slots_of(session: Session, run_id: str) -> tuple[int, ...]:
    """The slots that a run has."""
    query = select(Slot.slot).where(Slot.run == run_id).order_by(Slot.slot)
    return tuple(session.execute(query).scalars())


def take(session: Session, run_id: str, host: str, slots: Sequence[int]) -> None:
    """Give slots to a run; the table's key refuses one that is taken."""
    session.execute(insert(Slot), [{"host": host, "slot": slot, "run": run_id} for slot in slots])


def free(session: Session, run_id: str) -> None:
    """Take a run's slots back."""
    session.execute(delete(Slot).where(Slot.run == run_id))
