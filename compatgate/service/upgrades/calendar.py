"""Keep freezes and the known-good states of targets, with their rows in the database."""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import delete, insert, select
from sqlalchemy.orm import Session

from compatgate.documents.specs import NAME_PATTERN
from compatgate.errors import BadInput, NotFound
from compatgate.kit import clock
from compatgate.kit.clock import iso
from compatgate.kit.database.database import Database
from compatgate.service.audit import repository as audit
from compatgate.service.matrix.service import Authorship, MatrixService
from compatgate.service.tokens.principal import Principal, matches
from compatgate.service.upgrades.models import FreezeRecord, FreezeRow, KnownGood, KnownGoodRecord
from compatgate.service.upgrades.schemas import FreezeRequest

MAX_FREEZES = 1000


class FreezeCalendar:
    """Freezes: periods in which no wave starts."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, name: str, request: FreezeRequest, by: Authorship) -> FreezeRow:
        """Store a freeze, or replace the one of its name.

        Raises:
            BadInput: its name is not one, it ends before it starts, or there are too many.
            AccessRefused: the author does not reach its targets.
        """
        by.check()
        if not re.match(NAME_PATTERN, name):
            hint = "letters, digits, dots, dashes and underscores, like year-end"
            raise BadInput("is not a valid freeze name", field="name", value=name, hint=hint)
        if by.principal is not None:
            by.principal.require_targets(request.targets)
        if request.until <= request.since:
            hint = f"a time after {iso(request.since)}"
            raise BadInput(
                "is not after the start of the freeze",
                field="until",
                value=iso(request.until),
                hint=hint,
            )
        now = clock.now()
        freeze = FreezeRow(
            name, tuple(request.targets), request.since, request.until, request.owner, by.reason,
            by.author, now,
        )  # fmt: skip
        with self._database.writing() as session:
            known = list_freezes(session)
            self._require_own(next((one for one in known if one.name == name), None), by)
            if len(known) >= MAX_FREEZES and name not in {one.name for one in known}:
                hint = "delete those that have ended"
                raise BadInput("too many freezes", field="name", value=len(known), hint=hint)
            save_freeze(session, freeze)
            detail: dict[str, Any] = {
                "targets": list(freeze.targets), "since": iso(freeze.since),
                "until": iso(freeze.until), "owner": freeze.owner, "reason": freeze.reason,
            }  # fmt: skip
            audit.append(
                session, at=now, actor=by.author, action="freeze.set", subject=name, detail=detail
            )
        return freeze

    def _require_own(self, old: FreezeRow | None, by: Authorship) -> None:
        if old is not None and by.principal is not None:
            by.principal.require_targets(old.targets)

    def delete(self, name: str, by: Authorship) -> FreezeRow:
        """Delete a freeze.

        Raises:
            NotFound: there is none of that name.
            AccessRefused: the author does not reach its targets.
        """
        by.check()
        with self._database.writing() as session:
            freeze = find_freeze(session, name)
            self._require_own(freeze, by)
            delete_freeze(session, name)
            audit.append(
                session, at=clock.now(), actor=by.author, action="freeze.delete", subject=name,
                detail={"targets": list(freeze.targets), "reason": by.reason},
            )  # fmt: skip
        return freeze

    def list(self, *, target: str | None = None, ended: bool = False) -> list[FreezeRow]:
        """Return freezes by their start.

        Args:
            target: only those that hold its waves.
            ended: those that are over, too.
        """
        with self._database.reading() as session:
            found = list_freezes(session, until_after=None if ended else clock.now())
        return [one for one in found if target is None or matches(one.targets, target)]


class KnownGoodChannel:
    """The last known-good states of targets."""

    def __init__(self, database: Database, matrix: MatrixService) -> None:
        self._database = database
        self._matrix = matrix

    def list_states(self, within: Principal | None = None) -> list[KnownGood]:
        """Return the known-good states by target, of those that a caller reaches."""
        with self._database.reading() as session:
            found = load_known_good(session)
        return [one for one in found if within is None or within.reaches(one.target)]

    def find(self, target: str) -> KnownGood:
        """Return the known-good state of a target.

        Raises:
            NotFound: it has none yet.
        """
        found = self.look_up(target)
        if found is None:
            hint = "the first wave of an upgrade marks the state before it, its end the new one"
            what = f"the target {target!r} has no known-good state yet"
            raise NotFound(what, field="target", value=target, hint=hint)
        return found

    def look_up(self, target: str) -> KnownGood | None:
        """Return the known-good state of a target; None: it has none yet."""
        with self._database.reading() as session:
            return next(iter(load_known_good(session, [target])), None)

    def export(self, target: str) -> list[dict[str, Any]]:
        """Return the target with its known-good drivers, and its entries and waivers of then.

        Raises:
            NotFound: it has no known-good state.
        """
        good = self.find(target)
        found = []
        for body in self._matrix.export(revision=good.revision):
            if body["kind"] == "Target":
                if body["metadata"]["name"] == target:
                    found.append(_with_drivers(body, good.drivers))
            elif {target, "*"} & set(body["spec"]["targets"]):
                found.append(body)
        return found


def _with_drivers(body: dict[str, Any], drivers: dict[str, str]) -> dict[str, Any]:
    spec = body["spec"]
    pools = [
        {**pool, "driver": drivers[pool["name"]]} if pool["name"] in drivers else pool
        for pool in spec["pools"]
    ]
    return {**body, "spec": {**spec, "pools": pools}}


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
