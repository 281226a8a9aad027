"""Propose upgrades, let waves start, and stop, resume and roll back.

Whoever asks whether a wave may start also makes the gate look: it records waves that have finished
and triggers that end the upgrade, and lets the asker start the wave, all in one transaction that no
other asker overlaps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy.orm import Session

from compatgate.core.upgrade_state import Knowledge, State, Upgrade
from compatgate.core.upgrades import Decision, decide
from compatgate.documents.sources import suggest_name
from compatgate.errors import BadInput, Conflict, NotFound
from compatgate.kit import clock
from compatgate.kit.database.database import Database
from compatgate.kit.database.tables import DEFAULT_LIMIT, Page
from compatgate.service.gate.snapshot_reader import Snapshots
from compatgate.service.matrix.service import Authorship, require_storable
from compatgate.service.tokens.principal import AccessRefused, Principal
from compatgate.service.upgrades import calendar
from compatgate.service.upgrades import repository as upgrades
from compatgate.service.upgrades.drafting import draft_upgrade, make_question
from compatgate.service.upgrades.knowledge import load_node_reports
from compatgate.service.upgrades.models import KnownGood, UpgradeOutline, UpgradeRow
from compatgate.service.upgrades.progress import UpgradeProgress, note_action
from compatgate.service.upgrades.repository import split_key
from compatgate.service.upgrades.schemas import UpgradeRequest

T = TypeVar("T")
_MAX_NAME = 128
MakePlan = Callable[[str, Mapping[str, Any]], dict[str, Any]]


class UpgradeView(Struct, frozen=True):
    """An upgrade with current knowledge and the decision about its next wave."""

    row: UpgradeRow
    known: Knowledge
    decision: Decision
    good: KnownGood | None = None


class Upgrades:
    """The upgrades of one database.

    Args:
        database: open, with its schema.
        snapshots: of the gate.
        plan: plans a driver on a target; nodes are named by key.
    """

    def __init__(self, database: Database, snapshots: Snapshots, plan: MakePlan) -> None:
        self._database = database
        self._snapshots = snapshots
        self._plan = plan
        self._progress = UpgradeProgress(snapshots)

    def propose(self, request: UpgradeRequest, by: Authorship) -> UpgradeView:
        """Store an upgrade with the waves that the plan gives it; nothing starts by that.

        Raises:
            BadInput: a name, driver or duration is malformed.
            NotFound: the target, pool or entry does not exist.
            AccessRefused: the author does not reach the target.
            Conflict: the name is taken, a node is in another open upgrade, or no node would take
                the driver.
        """
        by.check()
        if by.principal is not None:
            by.principal.require_targets([request.target])
        snapshot = self._snapshots.refresh()
        snapshot.target(request.target)
        for place, entry in enumerate(request.accepts):
            if entry not in snapshot.entries:
                hint = suggest_name(entry, snapshot.entries)
                what = f"entry {entry!r} does not exist"
                raise NotFound(what, field=f"accepts[{place}]", value=entry, hint=hint)
        plan = self._plan(request.target, make_question(request))

        def write(session: Session) -> UpgradeView:
            if upgrades.has_upgrade(session, request.name):
                hint = "choose another name; the history of an upgrade keeps its name"
                what = f"the upgrade {request.name!r} already exists"
                raise Conflict(what, field="name", value=request.name, hint=hint)
            keys = [
                key
                for wave in plan["order"]["waves"]
                for domain in wave["domains"]
                for key in domain["nodes"]
            ]
            reports = load_node_reports(session, keys)
            drivers = {key: report[0] for key, report in reports.items()}
            draft = draft_upgrade(request, plan, by, clock.now(), drivers)
            self._require_free(session, keys)
            upgrades.store_upgrade(session, draft.values, draft.waves, draft.nodes)
            row = upgrades.find_upgrade(session, request.name)
            note_action(session, row, "propose", by.author, by.identity, text=by.reason)
            return self._view(session, upgrades.find_upgrade(session, request.name))

        with self._database.writing() as session:
            return write(session)

    def _require_free(self, session: Session, keys: Collection[str]) -> None:
        taken = upgrades.find_open(session, map(upgrades.split_key, keys))
        if taken:
            key, other = next(iter(sorted(taken.items())))
            hint = f"end {other} first, or exclude the node from it"
            what = f"{len(taken)} nodes are in another upgrade: {key} in {other}"
            raise Conflict(what, field="target", value=other, hint=hint)

    def list(
        self,
        *,
        state: State | None = None,
        target: str | None = None,
        within: Principal | None = None,
        cursor: str | None = None,
        limit: int = DEFAULT_LIMIT,
    ) -> Page[UpgradeOutline]:
        """Return upgrades, the newest first.

        Args:
            state: as stored.
            target: only of this target.
            within: a caller who sees only its targets.
            cursor: of the page.
            limit: most rows.
        """
        with self._database.reading() as session:
            targets = None
            if within is not None and within.targets is not None:
                known = self._snapshots.current().documents
                targets = [name for name in known if within.reaches(name)]
            return upgrades.list_upgrades(
                session, state=state, target=target, targets=targets, cursor=cursor, limit=limit
            )

    def show(self, name: str, by: Principal | None = None) -> UpgradeView:
        """Return an upgrade as it is now; record nothing.

        Raises:
            NotFound: there is none of that name.
            AccessRefused: the caller does not reach its target.
        """
        with self._database.reading() as session:
            row = self._find(session, name, by)
            return self._view(session, row)

    def list_open(self, *, limit: int) -> tuple[UpgradeOutline, ...]:
        """Return upgrades of which a wave may still start, as recorded; the newest first."""
        with self._database.reading() as session:
            return tuple(upgrades.list_open(session, limit=limit))

    def watch(self, session: Session, *, limit: int) -> tuple[UpgradeView, ...]:
        """Return upgrades that may need attention, as they are now; record nothing."""
        rows = upgrades.list_watched(session, clock.now(), limit=limit)
        return tuple(self._view(session, row) for row in rows)

    def find_names(self, text: str, *, limit: int) -> tuple[str, ...]:
        """Return names that contain a text; the newest upgrade's first."""
        with self._database.reading() as session:
            return tuple(upgrades.find_names(session, text, limit=limit))

    def ask(
        self,
        name: str,
        by: Principal,
        *,
        wave: int | None = None,
        holder: str | None = None,
        dry_run: bool = False,
    ) -> UpgradeView:
        """Answer whether a wave may start; if so, let the asker start it.

        Args:
            name: of the upgrade.
            by: the caller.
            wave: its number; None: the next one.
            holder: who would roll the wave; None: the caller's name.
            dry_run: report only; record nothing, and start nothing.

        Raises:
            NotFound: the upgrade or wave does not exist; names the waves.
            BadInput: the holder's name is empty or too long.
            AccessRefused: the caller does not reach its target.
        """
        asker = by.name if holder is None else holder.strip()
        if not asker:
            raise BadInput(
                "must not be empty", field="by", hint="name the person or tool that rolls the wave"
            )
        require_storable(asker, "by", _MAX_NAME, f"{_MAX_NAME} bytes")
        self._snapshots.refresh()
        opened = self._database.reading() if dry_run else self._database.writing()
        with opened as session:
            row = self._find(session, name, by)
            require_wave(row.upgrade, wave)
            row, known = self._progress.look(session, row, record=not dry_run)
            found = decide(row.upgrade, known, wave, asker)
            if found.answer == "start" and found.wave is not None and not dry_run:
                row = self._progress.take(session, row, found.wave, asker, by, known.now)
            return UpgradeView(row, known, found, self._good(session, row))

    def approve(self, name: str, by: Principal, *, text: str = "") -> UpgradeView:
        """Approve somebody else's upgrade.

        Raises:
            NotFound: there is none of that name.
            AccessRefused: the caller proposed it, or does not reach its target.
            Conflict: it has ended.
        """

        def write(session: Session, row: UpgradeRow) -> None:
            if row.identity == by.identity:
                what = f"{by.name} proposed {name}: another person approves it"
                raise AccessRefused(what, principal=by, field="name", value=name)
            if by.identity not in {one.identity for one in row.approvals}:
                note_action(session, row, "approve", by.name, by.identity, text=text)

        return self._change(name, by, write)

    def retract(self, name: str, by: Principal, *, text: str = "") -> UpgradeView:
        """Withdraw your approval; a wave that has started waits, too.

        Raises:
            NotFound: there is none of that name.
            Conflict: it has ended, or the caller has not approved it.
        """

        def write(session: Session, row: UpgradeRow) -> None:
            if by.identity not in {one.identity for one in row.approvals}:
                raise Conflict(f"{by.name} has not approved {name}", field="name", value=name)
            note_action(session, row, "retract", by.name, by.identity, text=text)

        return self._change(name, by, write)

    def stop(self, name: str, by: Authorship) -> UpgradeView:
        """Hold every wave until somebody resumes it.

        Raises:
            NotFound: there is none of that name.
            Conflict: it has ended, or is stopped.
        """

        def write(session: Session, row: UpgradeRow) -> None:
            if row.state == "stopped":
                raise Conflict(f"{name} is stopped already", field="name", value=name)
            why = f"{by.author} stopped the upgrade: {by.reason}"
            self._save(session, row, replace(row.upgrade, state="stopped", why=why))
            note_action(session, row, "stop", by.author, by.identity, text=by.reason)

        return self._change(name, by, write)

    def resume(self, name: str, by: Authorship) -> UpgradeView:
        """Let a stopped upgrade go on.

        Raises:
            NotFound: there is none of that name.
            Conflict: it is not stopped; one that was rolled back stays so.
        """

        def write(session: Session, row: UpgradeRow) -> None:
            if row.state != "stopped":
                hint = "only a stopped upgrade is resumed"
                raise Conflict(f"{name} is {row.state}", field="name", value=name, hint=hint)
            state: State = "rolling" if row.upgrade.began else "proposed"
            self._save(session, row, replace(row.upgrade, state=state, why=""))
            note_action(session, row, "resume", by.author, by.identity, text=by.reason)

        return self._change(name, by, write)

    def roll_back(self, name: str, by: Authorship) -> UpgradeView:
        """Roll an upgrade back: every wave gets the answer "roll back".

        Raises:
            NotFound: there is none of that name.
            Conflict: it has ended.
        """

        def write(session: Session, row: UpgradeRow) -> None:
            why = f"{by.author} rolled the upgrade back: {by.reason}"
            self._save(session, row, replace(row.upgrade, state="rolled back", why=why))
            note_action(session, row, "roll back", by.author, by.identity, text=by.reason)

        return self._change(name, by, write)

    def leave_out(self, name: str, nodes: Collection[str], by: Authorship) -> UpgradeView:
        """Let nodes take no part any longer: neither waves nor triggers wait for them.

        Args:
            name: of the upgrade.
            nodes: keys, or names where they are unique.
            by: author and reason.

        Raises:
            NotFound: there is none of that name, or it has no such node.
            BadInput: several clusters have a node of that name.
            Conflict: it has ended, or nobody would be left.
        """

        def write(session: Session, row: UpgradeRow) -> None:
            keys = pick_keys(row.upgrade, nodes)
            left = [k for wave in row.upgrade.waves for k in wave.expected if k not in keys]
            if not left:
                hint = f"compatgate upgrade roll-back {name} ends it"
                what = "would exclude every node"
                raise Conflict(what, field="nodes", value=len(keys), hint=hint)
            upgrades.leave_out(session, name, keys, by.reason)
            text = f"{', '.join(keys)}: {by.reason}"
            note_action(session, row, "leave out", by.author, by.identity, text=text)

        return self._change(name, by, write)

    def _change(
        self,
        name: str,
        by: Principal | Authorship,
        write: Callable[[Session, UpgradeRow], None],
    ) -> UpgradeView:
        """Change an open upgrade; the next question records what the gate notices by that."""
        principal = by if isinstance(by, Principal) else by.check().principal
        self._snapshots.refresh()
        with self._database.writing() as session:
            row = self._find(session, name, principal)
            if not row.is_open:
                hint = "propose another upgrade"
                raise Conflict(f"{name} is {row.state}", field="name", value=name, hint=hint)
            write(session, row)
            return self._view(session, upgrades.find_upgrade(session, name))

    def _find(self, session: Session, name: str, by: Principal | None) -> UpgradeRow:
        row = upgrades.find_upgrade(session, name)
        if by is not None:
            by.require_any([row.upgrade.target], f"the upgrade {name}")
        return row

    def _view(self, session: Session, row: UpgradeRow) -> UpgradeView:
        row, known = self._progress.look(session, row, record=False)
        return UpgradeView(row, known, decide(row.upgrade, known), self._good(session, row))

    def _good(self, session: Session, row: UpgradeRow) -> KnownGood | None:
        return next(iter(calendar.load_known_good(session, [row.upgrade.target])), None)

    def _save(self, session: Session, row: UpgradeRow, after: Upgrade) -> None:
        upgrades.save_state(session, row.upgrade, after, clock.now())


def require_wave(upgrade: Upgrade, number: int | None) -> None:
    """Require that an upgrade has a wave.

    Raises:
        NotFound: it has none of that number; names those that there are.
    """
    last = len(upgrade.waves)
    if number is not None and not 1 <= number <= last:
        have = f"waves 1 to {last}" if last > 1 else "one wave, 1"
        raise NotFound(
            f"{upgrade.name} has no wave {number}", field="wave", value=number,
            hint=f"it has {have}",
        )  # fmt: skip


def pick_keys(upgrade: Upgrade, nodes: Collection[str]) -> list[str]:
    """Return the keys of nodes that are named by key, or by a name that one cluster has.

    Raises:
        NotFound: the upgrade has no such node.
        BadInput: several clusters have one.
    """
    keys = [key for wave in upgrade.waves for key in wave.nodes]
    by_name: dict[str, list[str]] = {}
    for key in keys:
        by_name.setdefault(split_key(key)[1], []).append(key)
    known, found = set(keys), []
    for place, node in enumerate(nodes):
        field = f"nodes[{place}]"
        same = [node] if node in known else by_name.get(node, [])
        if not same:
            hint = suggest_name(node, [*known, *by_name])
            what = f"{upgrade.name} has no node {node!r}"
            raise NotFound(what, field=field, value=node, hint=hint)
        if len(same) > 1:
            raise BadInput(
                "belongs to several clusters",
                field=field,
                value=node,
                hint=f"name one, for example {same[0]}",
            )
        found.append(same[0])
    return list(dict.fromkeys(found))
