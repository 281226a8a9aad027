"""Propose upgrades, let waves start, and stop, resume and roll back.

Whoever asks whether a wave may start also makes the gate look: it records waves that have finished
and triggers that end the upgrade, and lets the asker start the wave, all in one transaction that no
other asker overlaps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy.orm import Session

from compatgate.core.upgrade_state import Knowledge, State, Upgrade
from compatgate.core.upgrades import Decision, apply, decide, notice, take_wave
from compatgate.documents.sources import suggest_name
from compatgate.errors import BadInput, Conflict, NotFound
from compatgate.kit import clock
from compatgate.kit.database.database import Database, in_reading
from compatgate.kit.database.tables import DEFAULT_LIMIT, Page
from compatgate.kit.principal import AccessRefused, Authorship, Principal, require_storable
from compatgate.service.changes.upgrades import repository as upgrades
from compatgate.service.changes.upgrades.knowledge import (
    BEFORE,
    count_stacks,
    gather,
    load_node_reports,
)
from compatgate.service.changes.upgrades.models import EventAction, UpgradeRecord, UpgradeRow
from compatgate.service.changes.upgrades.repository import (
    find_known_good,
    list_nodes,
    make_upgrade,
    mark_known_good,
)
from compatgate.service.changes.upgrades.schemas import (
    KnownGoodBody,
    UpgradeRequest,
    UpgradeSummary,
)
from compatgate.service.matrix.snapshots.reader import Snapshots

_MAX_NAME = 128
_MAX_TEXT = 16_000
_ACTIONS: Mapping[str, EventAction] = {
    "finish": "finish", "trigger": "roll back", "complete": "complete",
}  # fmt: skip
MakePlan = Callable[[str, Mapping[str, Any]], dict[str, Any]]
"""Plans a driver on a target; nodes are named by key."""


class UpgradeView(Struct, frozen=True):
    """An upgrade with current knowledge and the decision about its next wave."""

    row: UpgradeRow
    known: Knowledge
    decision: Decision
    good: KnownGoodBody | None = None


class Upgrades:
    """The upgrades of one database."""

    list_open = in_reading(upgrades.list_open)
    find_names = in_reading(upgrades.find_names)

    def __init__(self, database: Database, snapshots: Snapshots, plan: MakePlan) -> None:
        self._database = database
        self._snapshots = snapshots
        self._plan = plan

    def propose(self, request: UpgradeRequest, by: Authorship) -> UpgradeView:
        """Store an upgrade with the waves that the plan gives it; nothing starts by that."""
        by.check()
        if by.principal is not None:
            by.principal.require_targets([request.target])
        snapshot = self._snapshots.refresh()
        snapshot.target(request.target)
        for place, entry in enumerate(request.accepts):
            snapshot.entry(entry, f"accepts[{place}]")
        asked = {"rack_labels": request.rack_labels, "set": {"driver": request.driver}}
        plan = self._plan(request.target, asked | ({"pool": request.pool} if request.pool else {}))
        waves = plan["order"]["waves"]
        keys = [key for wave in waves for domain in wave["domains"] for key in domain["nodes"]]
        with self._database.writing() as session:
            if session.get(UpgradeRecord, request.name) is not None:
                hint = "choose another name; the history of an upgrade keeps its name"
                what = f"the upgrade {request.name!r} already exists"
                raise Conflict(what, field="name", value=request.name, hint=hint)
            record = make_upgrade(request, plan, by, clock.now())
            if taken := upgrades.find_open(session, keys):
                key, other = min(taken.items())
                hint = f"end {other} first, or exclude the node from it"
                what = f"{len(taken)} nodes are in another upgrade: {key} in {other}"
                raise Conflict(what, field="target", value=other, hint=hint)
            reports = load_node_reports(session, keys)
            drivers = {key: report[0] for key, report in reports.items()}
            upgrades.store_upgrade(session, record, waves, [*list_nodes(plan, drivers)])
            row = upgrades.find_upgrade(session, request.name)
            _note(session, row, "propose", by, text=by.reason)
            return self._view(session, upgrades.find_upgrade(session, request.name))

    def list(
        self,
        *,
        state: State | None = None,
        target: str | None = None,
        within: Principal | None = None,
        cursor: str | None = None,
        limit: int = DEFAULT_LIMIT,
    ) -> Page[UpgradeSummary]:
        """Return upgrades, the newest first; ``within``: a caller who sees only its targets."""
        with self._database.reading() as session:
            targets = None
            if within is not None and within.targets is not None:
                known = self._snapshots.current().documents
                targets = [name for name in known if within.reaches(name)]
            return upgrades.list_upgrades(
                session, state=state, target=target, targets=targets, cursor=cursor, limit=limit
            )

    def show(self, name: str, by: Principal | None = None) -> UpgradeView:
        """Return an upgrade as it is now; record nothing."""
        with self._database.reading() as session:
            return self._view(session, self._find(session, name, by))

    def watch(self, session: Session, *, limit: int) -> tuple[UpgradeView, ...]:
        """Return upgrades that may need attention, as they are now; record nothing."""
        rows = upgrades.list_watched(session, clock.now(), limit=limit)
        return tuple(self._view(session, row) for row in rows)

    def ask(
        self,
        name: str,
        by: Principal,
        *,
        wave: int | None = None,
        holder: str | None = None,
        dry_run: bool = False,
    ) -> UpgradeView:
        """Answer whether a wave, or the next one, may start; if so, let the holder start it.

        The holder is who would roll the wave; None: the caller. A dry run records and starts
        nothing.
        """
        asker = by.name if holder is None else holder.strip()
        if not asker:
            hint = "name the person or tool that rolls the wave"
            raise BadInput("must not be empty", field="by", hint=hint)
        require_storable(asker, "by", _MAX_NAME, f"{_MAX_NAME} bytes")
        self._snapshots.refresh()
        opened = self._database.reading() if dry_run else self._database.writing()
        with opened as session:
            row = self._find(session, name, by)
            if wave is not None and not 1 <= wave <= len(row.waves):
                last = len(row.waves)
                hint = f"it has {f'waves 1 to {last}' if last > 1 else 'one wave, 1'}"
                raise NotFound(f"{name} has no wave {wave}", field="wave", value=wave, hint=hint)
            row, known = self._look(session, row, record=not dry_run)
            answer = decide(row, known, wave, asker)
            if answer.answer == "start" and answer.wave is not None and not dry_run:
                row = self._take(session, row, answer.wave, asker, by, known.now)
            return UpgradeView(row, known, answer, find_known_good(session, row.target))

    def approve(self, name: str, by: Principal) -> UpgradeView:
        """Approve another person's upgrade; the author may not."""
        with self._changing(name, by) as (session, row):
            if not row.names.isdisjoint(by.names):
                what = f"{by.name} proposed {name}: another person approves it"
                raise AccessRefused(what, principal=by, field="name", value=name)
            if not row.has_approval_of(by.names):
                _note(session, row, "approve", by)
            return self._view(session, upgrades.find_upgrade(session, name))

    def retract(self, name: str, by: Principal) -> UpgradeView:
        """Withdraw your approval; a wave that has started waits, too."""
        with self._changing(name, by) as (session, row):
            if not row.has_approval_of(by.names):
                raise Conflict(f"{by.name} has not approved {name}", field="name", value=name)
            _note(session, row, "retract", by)
            return self._view(session, upgrades.find_upgrade(session, name))

    def stop(self, name: str, by: Authorship) -> UpgradeView:
        """Hold every wave until somebody resumes it."""
        with self._changing(name, by.check().principal) as (session, row):
            if row.state == "stopped":
                raise Conflict(f"{name} is stopped already", field="name", value=name)
            why = f"{by.author} stopped the upgrade: {by.reason}"
            return self._turn(session, row, "stop", "stopped", by, why)

    def resume(self, name: str, by: Authorship) -> UpgradeView:
        """Let a stopped upgrade go on; one that was rolled back stays so."""
        with self._changing(name, by.check().principal) as (session, row):
            if row.state != "stopped":
                hint = "only a stopped upgrade is resumed"
                raise Conflict(f"{name} is {row.state}", field="name", value=name, hint=hint)
            state: State = "rolling" if row.began else "proposed"
            return self._turn(session, row, "resume", state, by, "")

    def roll_back(self, name: str, by: Authorship) -> UpgradeView:
        """Roll an upgrade back: every wave gets the answer "roll back".

        Before a wave has begun this withdraws it: no node has taken the driver.
        """
        with self._changing(name, by.check().principal) as (session, row):
            done = "rolled the upgrade back" if row.began else "withdrew the upgrade"
            why = f"{by.author} {done}: {by.reason}"
            return self._turn(session, row, "roll back", "rolled back", by, why)

    def leave_out(self, name: str, nodes: Collection[str], by: Authorship) -> UpgradeView:
        """Let nodes, by key or unique name, take no part: no wave or trigger waits for them."""
        with self._changing(name, by.check().principal) as (session, row):
            keys = _pick_keys(row, nodes)
            if not any(key not in keys for wave in row.waves for key in wave.expected):
                hint = f"compatgate upgrade roll-back {name} ends it"
                what = "would exclude every node"
                raise Conflict(what, field="nodes", value=len(keys), hint=hint)
            upgrades.leave_out(session, name, keys, by.reason)
            _note(session, row, "leave out", by, text=f"{', '.join(keys)}: {by.reason}")
            return self._view(session, upgrades.find_upgrade(session, name))

    @contextmanager
    def _changing(self, name: str, by: Principal | None) -> Iterator[tuple[Session, UpgradeRow]]:
        """Open an upgrade to change it; the next question records what the gate notices then."""
        self._snapshots.refresh()
        with self._database.writing() as session:
            row = self._find(session, name, by)
            if not row.is_open:
                hint = "propose another upgrade"
                raise Conflict(f"{name} is {row.state}", field="name", value=name, hint=hint)
            yield session, row

    def _turn(
        self,
        session: Session,
        row: UpgradeRow,
        action: EventAction,
        state: State,
        by: Authorship,
        why: str,
    ) -> UpgradeView:
        upgrades.save_state(session, row, replace(row, state=state, why=why), clock.now())
        _note(session, row, action, by, text=by.reason)
        return self._view(session, upgrades.find_upgrade(session, row.name))

    def _look(
        self, session: Session, row: UpgradeRow, *, record: bool
    ) -> tuple[UpgradeRow, Knowledge]:
        """Return an upgrade after everything that the gate notices about it now."""
        known = gather(session, row, self._snapshots.current(), clock.now())
        while events := notice(row, known):
            after = apply(row, events)
            if record:
                upgrades.save_state(session, row, after, known.now)
                for one in events:
                    action, text = _ACTIONS[one.action], one.text
                    upgrades.add_event(session, row, action, at=one.at, wave=one.wave, text=text)
                    if action == "complete":
                        self._mark_good(session, row, known.now, done=True)
            row = after
        return row, known

    def _take(
        self,
        session: Session,
        row: UpgradeRow,
        number: int,
        asker: str,
        by: Principal,
        now: datetime,
    ) -> UpgradeRow:
        """Let an asker start a wave, or go on with it; the first one marks what is known good."""
        wave, after = row.waves[number - 1], take_wave(row, number, asker, now)
        upgrades.save_state(session, row, after, now)
        if wave.started is None:
            text = "" if asker == by.name else f"for {asker}"
            _note(session, row, "start", by, wave=number, text=text)
        elif wave.holder != asker:
            text = f"{asker} continues for {wave.holder}"
            _note(session, row, "take over", by, wave=number, text=text)
        if row.began is None:
            record = session.get_one(UpgradeRecord, row.name)
            record.before = count_stacks(session, row.target, now - BEFORE)
            self._mark_good(session, row, now, done=False)
        return after

    def _mark_good(self, session: Session, row: UpgradeRow, now: datetime, *, done: bool) -> None:
        snapshot = self._snapshots.current()
        target = snapshot.targets.get(row.target)
        if target is None:
            return
        drivers = {pool.name: pool.driver.text for pool in target.pools if pool.driver}
        if done:
            drivers |= dict.fromkeys(row.pools, row.driver)
        mark_known_good(
            session, KnownGoodBody(target.name, snapshot.revision, drivers, row.name, now)
        )

    def _find(self, session: Session, name: str, by: Principal | None) -> UpgradeRow:
        row = upgrades.find_upgrade(session, name)
        if by is not None:
            by.require_any([row.target], f"the upgrade {name}")
        return row

    def _view(self, session: Session, row: UpgradeRow) -> UpgradeView:
        row, known = self._look(session, row, record=False)
        return UpgradeView(row, known, decide(row, known), find_known_good(session, row.target))


def _note(
    session: Session,
    row: UpgradeRow,
    action: EventAction,
    by: Principal | Authorship,
    *,
    wave: int | None = None,
    text: str = "",
) -> None:
    require_storable(text, "reason", _MAX_TEXT, f"{_MAX_TEXT} bytes")
    actor = by.name if isinstance(by, Principal) else by.author
    about: dict[str, Any] = {"actor": actor, "identity": by.identity, "wave": wave, "text": text}
    upgrades.add_event(session, row, action, at=clock.now(), **about)


def _pick_keys(upgrade: Upgrade, nodes: Collection[str]) -> list[str]:
    """Return the keys of nodes that are named by key, or by a name that one cluster has."""
    known = {key: [key] for wave in upgrade.waves for key in wave.nodes}
    by_name: dict[str, list[str]] = {}
    for key in known:
        by_name.setdefault(upgrades.split_key(key)[1], []).append(key)
    keys = []
    for place, node in enumerate(nodes):
        field = f"nodes[{place}]"
        same = known.get(node) or by_name.get(node, [])
        if not same:
            hint = suggest_name(node, [*known, *by_name])
            what = f"{upgrade.name} has no node {node!r}"
            raise NotFound(what, field=field, value=node, hint=hint)
        if len(same) > 1:
            hint = f"name one, for example {same[0]}"
            raise BadInput("belongs to several clusters", field=field, value=node, hint=hint)
        keys.append(same[0])
    return list(dict.fromkeys(keys))
