"""Find upgrades that need attention: those to roll back, and those that wait for a person."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from compatgate.core.incidents import Condition, Member
from compatgate.service.gate.snapshot import Snapshot
from compatgate.service.notices.conditions import count_of, make_condition, target_member
from compatgate.service.upgrades.service import UpgradeView

TOLD = timedelta(days=1)
"""Minimum time that a rollback needs attention; longer where nodes still have the driver."""
IDLE = timedelta(hours=1)
"""A wave that has begun and that nobody has asked about for so long waits for a person."""


def find_upgrades(
    views: Iterable[UpgradeView], snapshot: Snapshot, now: datetime
) -> Iterator[Condition]:
    """Yield upgrades to roll back, and upgrades that have begun and are held; each is a cause.

    Args:
        views: upgrades as of now.
        snapshot: with owners and labels of targets.
        now: the time.
    """
    for view in views:
        if view.decision.answer == "roll back":
            yield from _find_rollback(view, snapshot, now)
        elif why := _find_hold(view, now):
            name, target = view.row.name, view.row.upgrade.target
            note = f"of {target} waits for a person: {why}"
            member = _member(view, snapshot, note, 1)
            message = f"{name} {note}"
            yield make_condition("upgrade-held", name, "warn", message, [member])


def list_rolling(views: Iterable[UpgradeView]) -> dict[tuple[str, str], str]:
    """Return upgrades that have begun and go on, by target and new driver."""
    return {
        (view.row.upgrade.target, view.row.upgrade.driver): view.row.name
        for view in views
        if view.row.state in ("rolling", "stopped") and view.decision.answer != "roll back"
    }


def _find_rollback(view: UpgradeView, snapshot: Snapshot, now: datetime) -> Iterator[Condition]:
    """Yield the rollback as long as nodes have the driver, and for a day in any case.

    An upgrade that has not begun has nothing to put back.
    """
    row = view.row
    upgrade, ended = row.upgrade, row.ended_at
    if upgrade.began is None:
        return
    changed = [
        key
        for wave in upgrade.waves
        for key in wave.expected
        if key not in wave.had and key in view.known.nodes and view.known.nodes[key].upgraded
    ]
    if not changed and ended is not None and now - ended > TOLD:
        return
    nodes = count_of(len(changed), "node")
    left = f"{nodes} still on driver {upgrade.driver}" if changed else "no node has its driver"
    why = "; ".join(view.decision.reasons)
    note = f"of {upgrade.target} must be rolled back ({left}): {why}"
    member = _member(view, snapshot, note, max(1, len(changed)))
    yield make_condition(
        "upgrade-rollback", row.name, "fail", f"{row.name} {note}", [member], ended
    )


def _find_hold(view: UpgradeView, now: datetime) -> str:
    """Return why an upgrade that has begun does not go on by itself; empty: it does."""
    upgrade = view.row.upgrade
    if not view.row.is_open or not (upgrade.began or upgrade.state == "stopped"):
        return ""
    wave = upgrade.next_wave
    if view.decision.answer == "wait" and view.decision.held:
        return "; ".join(view.decision.reasons)
    if wave and wave.held_until and now - wave.held_until > IDLE:
        return f"no one has continued wave {wave.number} since {wave.held_until:%Y-%m-%d %H:%MZ}"
    return ""


def _member(view: UpgradeView, snapshot: Snapshot, note: str, count: int) -> Member:
    target = target_member(snapshot, view.row.upgrade.target, "")
    return Member(
        "upgrade", view.row.name, note, target.owner, target.labels, target.targets, count
    )
