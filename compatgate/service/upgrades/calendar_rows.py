"""Store, find and list freezes and known-good states."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import delete, insert, select
from sqlalchemy.orm import Session

from compatgate.errors import NotFound
from compatgate.service.upgrades.models import (
    FreezeRecord,
    FreezeRow,
    KnownGood,
    KnownGoodRecord,
)

_encode = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder().decode


def save_freeze(session: Session, freeze: FreezeRow) -> None:
    """Store a freeze, or replace the one of its name."""
    session.execute(delete(FreezeRecord).where(FreezeRecord.name == freeze.name))
    values = {**msgspec.structs.asdict(freeze), "targets": " ".join(freeze.targets)}
    session.execute(insert(FreezeRecord), [values])


def delete_freeze(session: Session, name: str) -> None:
    """Delete a freeze."""
    session.execute(delete(FreezeRecord).where(FreezeRecord.name == name))


def find_freeze(session: Session, name: str) -> FreezeRow:
    """Return a freeze.

    Raises:
        NotFound: there is none of that name.
    """
    query = select(FreezeRecord.__table__).where(FreezeRecord.name == name)
    found = session.execute(query).first()
    if found is None:
        hint = "compatgate upgrade freezes names them"
        raise NotFound(f"freeze {name!r} does not exist", field="name", value=name, hint=hint)
    return _freeze(found)


def list_freezes(session: Session, *, until_after: datetime | None = None) -> list[FreezeRow]:
    """Return freezes by their start; ``until_after``: only those that end after it."""
    query = select(FreezeRecord.__table__)
    if until_after is not None:
        query = query.where(FreezeRecord.until > until_after)
    query = query.order_by(FreezeRecord.since, FreezeRecord.name)
    return [_freeze(row) for row in session.execute(query)]


def _freeze(row: Any) -> FreezeRow:
    return FreezeRow(
        row.name, tuple(row.targets.split()), row.since, row.until, row.owner, row.reason,
        row.made_by, row.made_at,
    )  # fmt: skip


def mark_known_good(session: Session, good: KnownGood) -> None:
    """Store the known-good state of a target, in place of the former one."""
    session.execute(delete(KnownGoodRecord).where(KnownGoodRecord.target == good.target))
    values = {**msgspec.structs.asdict(good), "drivers": _encode(good.drivers).decode()}
    session.execute(insert(KnownGoodRecord), [values])


def load_known_good(session: Session, targets: Collection[str] | None = None) -> list[KnownGood]:
    """Return the known-good states, by target; None: of all targets."""
    query = select(KnownGoodRecord.__table__).order_by(KnownGoodRecord.target)
    if targets is not None:
        query = query.where(KnownGoodRecord.target.in_(targets))
    return [
        KnownGood(row.target, row.revision, _decode(row.drivers), row.upgrade, row.marked_at)
        for row in session.execute(query)
    ]
