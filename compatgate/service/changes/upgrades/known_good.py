"""Store the known-good states of targets, to which a rollback returns."""

from __future__ import annotations

from typing import Any

from msgspec import convert
from msgspec.structs import asdict
from sqlalchemy import select
from sqlalchemy.orm import Session

from compatgate.errors import NotFound
from compatgate.kit.database.database import Database, in_reading
from compatgate.kit.principal import Principal
from compatgate.service.changes.upgrades.models import KnownGoodRecord
from compatgate.service.changes.upgrades.schemas import KnownGoodBody
from compatgate.service.matrix.documents.service import MatrixService


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
