"""Keep incidents current, list them, and let people snooze, resolve and reopen them.

Home, the commands and the notices all read the same incidents. In a server a thread surveys
(`compatgate.service.notices.worker`); elsewhere whoever reads surveys first.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from compatgate.core.incidents import IncidentKind, Member, Subject, reconcile
from compatgate.errors import BadInput, CompatgateError, Conflict
from compatgate.kit import clock
from compatgate.kit.database.database import Database
from compatgate.kit.database.tables import Page
from compatgate.kit.http.links import link
from compatgate.service.gate.snapshot_reader import Snapshots
from compatgate.service.matrix.service import Authorship
from compatgate.service.notices import outbox
from compatgate.service.notices import repository as incidents
from compatgate.service.notices.models import IncidentRow
from compatgate.service.notices.survey import Surveyor, decode_releases, encode_releases

if TYPE_CHECKING:
    from compatgate.service.baselines.service import BaselineService
    from compatgate.service.nodes.service import Nodes
    from compatgate.service.runs.service import Runs
    from compatgate.service.upgrades.service import Upgrades


SURVEY = "survey"
RELEASES = "releases"
PACE = timedelta(seconds=15)
"""Between two surveys of all replicas together."""
_CHANGED = timedelta(seconds=13)
"""A changed matrix is surveyed although the lease of the last survey still has so long."""
_INLINE_SECONDS = 0.05
_THOROUGH_SECONDS = 5.0
LONGEST_SNOOZE = timedelta(days=90)
_log = logging.getLogger("compatgate.notices")


class Attention(Struct, frozen=True):
    """Conditions that need attention, for the first page.

    Attributes:
        leading: a few of each kind, in the order of kinds.
        counts: number by kind and level, in the order of kinds.
        surveyed_at: None: there was no survey yet.
    """

    leading: Sequence[IncidentRow]
    counts: dict[IncidentKind, dict[str, int]]
    snoozed: int
    surveyed_at: datetime | None


class IncidentService:
    """The incidents of one database.

    Args:
        database: open, with its schema.
        snapshots: of the gate.
        runs: of the gate.
        baselines: of the gate.
        nodes: of the gate.
        upgrades: of the gate.

    Attributes:
        is_watched: a thread of this process surveys.
    """

    def __init__(
        self,
        database: Database,
        snapshots: Snapshots,
        runs: Runs,
        baselines: BaselineService,
        nodes: Nodes,
        upgrades: Upgrades,
    ) -> None:
        self._database = database
        self._snapshots = snapshots
        self._surveyor = Surveyor(runs, baselines, nodes, upgrades)
        self._seen: tuple[int, int, int] | None = None
        self.is_watched = False

    def survey(self, *, thorough: bool = True) -> list[int]:
        """Survey now: open, continue and end incidents, and queue their notices.

        Args:
            thorough: look for new releases, too, and take the time that it takes.

        Returns:
            Ids of the incidents that are news.

        Raises:
            Unavailable: the database does not answer.
        """
        now, snapshot = clock.now(), self._snapshots.current()
        with self._database.reading() as session:
            known = decode_releases(incidents.read_mark(session, RELEASES)[0])
            found = self._surveyor.survey(
                session,
                snapshot,
                now,
                seconds=_THOROUGH_SECONDS if thorough else _INLINE_SECONDS,
                failing=outbox.list_failing(session, now),
                releases=known if thorough else None,
            )
        with self._database.working() as session:
            incidents.lock_mark(session, SURVEY)
            before = incidents.load_known(session, [one.key for one in found.found])
            changes = reconcile(before, found.found, found.covered, now)
            news = incidents.apply_changes(session, changes, before, now)
            told = {change.key: change.told for change in changes if change.told}
            outbox.queue(session, incidents.load_incidents(session, news), told, now)
            incidents.write_mark(session, SURVEY, "{}", now)
            if found.releases is not None and found.releases != known:
                incidents.lock_mark(session, RELEASES)
                incidents.write_mark(session, RELEASES, encode_releases(found.releases), now)
        self._seen = snapshot.state
        return news

    def survey_if_due(self) -> bool:
        """Survey if no process did so lately, or the matrix has changed; return whether it did.

        Raises:
            Unavailable: the database does not answer.
        """
        now, state = clock.now(), self._snapshots.current().state
        early = _CHANGED if self._seen is not None and state != self._seen else timedelta(0)
        with self._database.reading() as session:
            until = incidents.lease_of(session, SURVEY)
        if until is not None and until > now + early:
            return False
        with self._database.working() as session:
            if not incidents.take_lease(session, SURVEY, now + early, now + PACE):
                self._seen = state
                return False
        self.survey()
        return True

    def prune(self) -> None:
        """Delete incidents and deliveries that ended long ago."""
        now = clock.now()
        with self._database.working() as session:
            incidents.prune_incidents(session, now)
            outbox.prune_deliveries(session, now)

    def refresh(self) -> None:
        """Survey unless a thread of this process does; keep what is known if that fails."""
        if self.is_watched:
            with self._database.reading() as session:
                if incidents.read_mark(session, SURVEY)[1] is not None:
                    return
        try:
            self.survey(thorough=False)
        except CompatgateError as error:
            _log.warning("incidents are not current: %s", error)

    def attention(self, each: int) -> Attention:
        """Return what needs attention: at most so many incidents of a kind, and all counts."""
        self.refresh()
        with self._database.reading() as session:
            return Attention(
                incidents.list_leading(session, each),
                incidents.count_active(session),
                incidents.count_snoozed(session),
                incidents.read_mark(session, SURVEY)[1],
            )

    def list(self, **filters: Any) -> Page[IncidentRow]:
        """Return incidents, the newest first; filters of `list_incidents`."""
        if not self.is_watched and filters.get("cursor") is None:
            self.refresh()
        with self._database.reading() as session:
            return incidents.list_incidents(session, **filters)

    def show(self, number: int) -> IncidentRow:
        """Return an incident with all its members.

        Raises:
            NotFound: there is none of that number.
        """
        with self._database.reading() as session:
            return incidents.find_incident(session, number)

    def snooze(self, number: int, until: datetime, by: Authorship) -> IncidentRow:
        """Hide an open incident until a time; nobody is told of it before that.

        Raises:
            BadInput: the time is past, or more than 90 days ahead.
            Conflict: it is not open.
            NotFound: there is none of that number.
        """
        now = clock.now()
        if not now < until <= now + LONGEST_SNOOZE:
            hint = f"a time in the next {LONGEST_SNOOZE.days} days"
            raise BadInput("out of range", field="until", value=clock.iso(until), hint=hint)
        with self._database.writing() as session:
            _require(incidents.find_incident(session, number), "snoozed", "open")
            return incidents.snooze(session, number, until, by=by.author, reason=by.reason)

    def resolve(self, number: int, by: Authorship) -> IncidentRow:
        """Resolve an open incident; it reopens if it happens again.

        Raises:
            BadInput: no reason was given.
            Conflict: it is not open.
            NotFound: there is none of that number.
        """
        by.check()
        with self._database.writing() as session:
            _require(incidents.find_incident(session, number), "resolved", "open")
            return incidents.resolve(session, number, by=by.author, reason=by.reason)

    def reopen(self, number: int, by: Authorship) -> IncidentRow:
        """Show a snoozed or resolved incident again.

        Raises:
            Conflict: its condition has ended, or it is shown already.
            NotFound: there is none of that number.
        """
        with self._database.writing() as session:
            row = incidents.find_incident(session, number)
            if not row.is_snoozed:
                _require(row, "reopened", "resolved")
            return incidents.reopen(session, number, by=by.author, reason=by.reason)


_HINTS = {"ended": "its condition no longer holds", "open": "it is open already"}


def _require(row: IncidentRow, done: str, state: str) -> None:
    if row.state != state:
        what = f"incident {row.id} is {row.state} and cannot be {done}"
        hint = _HINTS.get(row.state, "reopen it first")
        raise Conflict(what, field="id", value=row.id, hint=hint)


_PATHS: dict[Subject, str] = {
    "target": "targets",
    "entry": "entries",
    "waiver": "waivers",
    "run": "runs",
    "baseline": "baselines",
    "verdict": "verdicts",
    "upgrade": "upgrades",
}


def member_link(member: Member) -> str:
    """Return the address of the page about a member."""
    if member.about == "drift":
        return link("drift", target=member.name)
    if member.about == "channel":
        return link("notices", channel=member.name)
    if member.about == "release":
        return link("facts")
    return link(_PATHS[member.about], member.name)
