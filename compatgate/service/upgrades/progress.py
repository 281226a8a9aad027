"""Record events of an upgrade, and start its waves on request."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy.orm import Session

from compatgate.core.upgrade_state import Knowledge
from compatgate.core.upgrades import apply, notice, take_wave
from compatgate.kit import clock
from compatgate.service.gate.snapshot_reader import Snapshots
from compatgate.service.matrix.service import require_storable
from compatgate.service.tokens.principal import Principal
from compatgate.service.upgrades import repository as upgrades
from compatgate.service.upgrades.freezes import mark_known_good
from compatgate.service.upgrades.knowledge import BEFORE, count_stacks, gather
from compatgate.service.upgrades.models import EventAction, UpgradeRow
from compatgate.service.upgrades.schemas import KnownGoodBody

_MAX_TEXT = 16_000
_ACTIONS: Mapping[str, EventAction] = {
    "finish": "finish", "trigger": "roll back", "complete": "complete",
}  # fmt: skip


class UpgradeProgress:
    """Changes of upgrades, inside the transactions of others."""

    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots = snapshots

    def look(
        self, session: Session, row: UpgradeRow, *, record: bool
    ) -> tuple[UpgradeRow, Knowledge]:
        """Return an upgrade after everything that the gate notices about it now."""
        known = gather(session, row, self._snapshots.current(), clock.now())
        while events := notice(row, known):
            after = apply(row, events)
            if record:
                upgrades.save_state(session, row, after, known.now)
                for one in events:
                    action = _ACTIONS[one.action]
                    upgrades.add_event(
                        session, row, action, at=one.at, wave=one.wave, text=one.text
                    )
                    if action == "complete":
                        self._mark_good(session, row, known.now, done=True)
            row = after
        return row, known

    def take(
        self,
        session: Session,
        row: UpgradeRow,
        number: int,
        asker: str,
        by: Principal,
        now: datetime,
    ) -> UpgradeRow:
        """Let an asker start a wave, or go on with it; the first one marks what is known good."""
        wave, first = row.waves[number - 1], row.began is None
        after = take_wave(row, number, asker, now)
        upgrades.save_state(session, row, after, now)
        if wave.started is None:
            text = "" if asker == by.name else f"for {asker}"
            note_action(session, row, "start", by.name, by.identity, wave=number, text=text)
        elif wave.holder != asker:
            text = f"{asker} continues for {wave.holder}"
            note_action(session, row, "take over", by.name, by.identity, wave=number, text=text)
        if first:
            counts = count_stacks(session, row.target, now - BEFORE)
            upgrades.note_before(session, row.name, counts)
            self._mark_good(session, row, now, done=False)
        return after

    def _mark_good(self, session: Session, row: UpgradeRow, now: datetime, *, done: bool) -> None:
        """Store the state of the target that a rollback returns to."""
        snapshot = self._snapshots.current()
        target = snapshot.targets.get(row.target)
        if target is None:
            return
        drivers = {pool.name: pool.driver.text for pool in target.pools if pool.driver}
        if done:
            drivers |= dict.fromkeys(row.pools, row.driver)
        good = KnownGoodBody(target.name, snapshot.revision, drivers, row.name, now)
        mark_known_good(session, good)


def note_action(
    session: Session,
    row: UpgradeRow,
    action: EventAction,
    actor: str,
    identity: str,
    *,
    wave: int | None = None,
    text: str = "",
) -> None:
    """Store what a person did with an upgrade, and audit it."""
    require_storable(text, "reason", _MAX_TEXT, f"{_MAX_TEXT} bytes")
    upgrades.add_event(
        session, row, action, at=clock.now(), actor=actor, identity=identity, wave=wave, text=text
    )
