"""Keep the calendar of freezes, and the known-good states of targets."""

from __future__ import annotations

import re
from typing import Any

from compatgate.documents.specs import NAME_PATTERN
from compatgate.errors import BadInput, NotFound
from compatgate.kit import clock
from compatgate.kit.clock import iso
from compatgate.kit.database.database import Database
from compatgate.service.audit import repository as audit
from compatgate.service.matrix.service import Authorship, MatrixService
from compatgate.service.tokens.principal import Principal, matches
from compatgate.service.upgrades import calendar_rows as rows
from compatgate.service.upgrades.models import FreezeRow, KnownGood
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
            known = rows.list_freezes(session)
            self._require_own(next((one for one in known if one.name == name), None), by)
            if len(known) >= MAX_FREEZES and name not in {one.name for one in known}:
                hint = "delete those that have ended"
                raise BadInput("too many freezes", field="name", value=len(known), hint=hint)
            rows.save_freeze(session, freeze)
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
            freeze = rows.find_freeze(session, name)
            self._require_own(freeze, by)
            rows.delete_freeze(session, name)
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
            found = rows.list_freezes(session, until_after=None if ended else clock.now())
        return [one for one in found if target is None or matches(one.targets, target)]


class KnownGoodChannel:
    """The last known-good states of targets."""

    def __init__(self, database: Database, matrix: MatrixService) -> None:
        self._database = database
        self._matrix = matrix

    def list_states(self, within: Principal | None = None) -> list[KnownGood]:
        """Return the known-good states by target, of those that a caller reaches."""
        with self._database.reading() as session:
            found = rows.load_known_good(session)
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
            return next(iter(rows.load_known_good(session, [target])), None)

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
