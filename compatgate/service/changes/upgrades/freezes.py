"""Store freezes, periods in which no wave starts, and the known-good states of targets."""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import datetime
from typing import Any

from msgspec import convert
from msgspec.structs import asdict
from sqlalchemy import select
from sqlalchemy.orm import Session

from compatgate.documents.specs import NAME_PATTERN
from compatgate.errors import BadInput, NotFound
from compatgate.kit import clock
from compatgate.kit.clock import iso
from compatgate.kit.database.database import Database, in_reading
from compatgate.kit.principal import Authorship, Principal, matches
from compatgate.service.audit.events import repository as audit
from compatgate.service.changes.upgrades.models import FreezeRecord, KnownGoodRecord
from compatgate.service.changes.upgrades.schemas import FreezeBody, FreezeRequest, KnownGoodBody
from compatgate.service.matrix.documents.service import MatrixService

MAX_FREEZES = 1000


class Freezes:
    """The freezes of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, name: str, request: FreezeRequest, by: Authorship) -> FreezeBody:
        """Store a freeze, or replace the one of its name; the author reaches all its targets."""
        by.check()
        if not re.match(NAME_PATTERN, name):
            hint = "letters, digits, dots, dashes and underscores, like year-end"
            raise BadInput("is not a valid freeze name", field="name", value=name, hint=hint)
        _require_reach(by, request.targets)
        if request.until <= request.since:
            raise BadInput(
                "is not after the start of the freeze",
                field="until",
                value=iso(request.until),
                hint=f"a time after {iso(request.since)}",
            )
        now = clock.now()
        record = FreezeRecord(
            name=name, **asdict(request), reason=by.reason, made_by=by.author, made_at=now
        )
        with self._database.writing() as session:
            known = {one.name: one for one in session.scalars(select(FreezeRecord))}
            if name in known:
                _require_reach(by, known[name].targets)
            elif len(known) >= MAX_FREEZES:
                hint = "delete those that have ended"
                raise BadInput("too many freezes", field="name", value=len(known), hint=hint)
            freeze = _to_body(session.merge(record))
            detail: dict[str, Any] = {
                "targets": freeze.targets, "since": iso(freeze.since),
                "until": iso(freeze.until), "owner": freeze.owner, "reason": freeze.reason,
            }  # fmt: skip
            audit.append(
                session, at=now, actor=by.author, action="freeze.set", subject=name, detail=detail
            )
        return freeze

    def delete(self, name: str, by: Authorship) -> FreezeBody:
        """Delete a freeze; the author reaches all its targets."""
        by.check()
        with self._database.writing() as session:
            record = session.get(FreezeRecord, name)
            if record is None:
                hint = "compatgate upgrade freezes names them"
                what = f"freeze {name!r} does not exist"
                raise NotFound(what, field="name", value=name, hint=hint)
            _require_reach(by, record.targets)
            freeze = _to_body(record)
            session.delete(record)
            audit.append(
                session, at=clock.now(), actor=by.author, action="freeze.delete", subject=name,
                detail={"targets": freeze.targets, "reason": by.reason},
            )  # fmt: skip
        return freeze

    def list(self, *, target: str | None = None, ended: bool = False) -> list[FreezeBody]:
        """Return freezes by their start; ``ended``: those that are over, too."""
        with self._database.reading() as session:
            found = list_freezes(session, until_after=None if ended else clock.now())
        return [one for one in found if target is None or matches(tuple(one.targets), target)]


def _require_reach(by: Authorship, targets: Collection[str]) -> None:
    if by.principal is not None:
        by.principal.require_targets(targets)


def _to_body(record: FreezeRecord) -> FreezeBody:
    return convert(record, FreezeBody, from_attributes=True)


def list_freezes(session: Session, *, until_after: datetime | None = None) -> list[FreezeBody]:
    """Return freezes by their start; ``until_after``: only those that end after it."""
    query = select(FreezeRecord).order_by(FreezeRecord.since, FreezeRecord.name)
    if until_after is not None:
        query = query.where(FreezeRecord.until > until_after)
    return [*map(_to_body, session.scalars(query))]


def mark_known_good(session: Session, good: KnownGoodBody) -> None:
    """Store the known-good state of a target, in place of the former one."""
    session.merge(KnownGoodRecord(**asdict(good)))


def find_known_good(session: Session, target: str) -> KnownGoodBody | None:
    """Return the known-good state of a target; None: it has none yet."""
    row = session.get(KnownGoodRecord, target)
    return convert(row, KnownGoodBody, from_attributes=True) if row else None


class KnownGood:
    """The last known-good states of targets, to which a rollback returns."""

    look_up = in_reading(find_known_good)

    def __init__(self, database: Database, matrix: MatrixService) -> None:
        self._database = database
        self._matrix = matrix

    def list_states(self, within: Principal | None = None) -> list[KnownGoodBody]:
        """Return the known-good states by target, of those that a caller reaches."""
        with self._database.reading() as session:
            rows = session.scalars(select(KnownGoodRecord).order_by(KnownGoodRecord.target))
            found = [convert(row, KnownGoodBody, from_attributes=True) for row in rows]
        return [one for one in found if within is None or within.reaches(one.target)]

    def export(self, target: str) -> list[dict[str, Any]]:
        """Return the target with its known-good drivers, and its entries and waivers of then."""
        good = self.look_up(target)
        if good is None:
            hint = "the first wave of an upgrade marks the state before it, its end the new one"
            what = f"the target {target!r} has no known-good state yet"
            raise NotFound(what, field="target", value=target, hint=hint)
        found = []
        for body in self._matrix.export(revision=good.revision):
            spec = body["spec"]
            if body["kind"] != "Target":
                if {target, "*"} & set(spec["targets"]):
                    found.append(body)
            elif body["metadata"]["name"] == target:
                drivers = [good.drivers.get(pool["name"]) for pool in spec["pools"]]
                pools = [
                    {**pool, "driver": driver} if driver else pool
                    for pool, driver in zip(spec["pools"], drivers, strict=True)
                ]
                found.append({**body, "spec": {**spec, "pools": pools}})
        return found
