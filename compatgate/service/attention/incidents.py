"""Keep incidents current, list them, and let people snooze and reopen them.

Home, the commands, the metrics and the webhook all read the same incidents. In a server a thread
surveys (`compatgate.service.attention.worker`); elsewhere whoever reads surveys first.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct
from sqlalchemy import and_, delete, func, or_, select, update
from sqlalchemy.orm import Session

from compatgate.core.incidents import (
    FLAPPING,
    KINDS,
    IncidentKind,
    IncidentMember,
    IncidentState,
    Subject,
    reconcile,
)
from compatgate.errors import BadInput, CompatgateError, Conflict
from compatgate.kit import clock
from compatgate.kit.database.database import Database, in_reading
from compatgate.kit.database.tables import Page, narrow, page
from compatgate.kit.http.links import link
from compatgate.kit.http.schemas import Filter, ListQuery
from compatgate.kit.principal import Authorship
from compatgate.service.attention import repository as incidents
from compatgate.service.attention.repository import KEPT, Incident
from compatgate.service.attention.schemas import IncidentBody
from compatgate.service.attention.survey import Surveyor
from compatgate.service.audit import chain as audit
from compatgate.service.matrix.snapshots.reader import Snapshots

if TYPE_CHECKING:
    from compatgate.service.changes.upgrades.service import Upgrades
    from compatgate.service.nodes.service import Nodes
    from compatgate.service.runs.evidence.baselines import BaselineService
    from compatgate.service.runs.queue.service import Runs

SURVEY = "survey"
PACE = timedelta(seconds=15)
"""Between two surveys of all replicas together."""
LONGEST_SNOOZE = timedelta(days=90)
_CHANGED = timedelta(seconds=13)
"""A changed matrix is surveyed although the lease of the last survey still has so long."""
_INLINE_SECONDS = 0.05
_THOROUGH_SECONDS = 5.0
_PATHS: dict[Subject, str] = {
    "target": "targets",
    "entry": "entries",
    "waiver": "waivers",
    "run": "runs",
    "baseline": "baselines",
    "verdict": "verdicts",
    "upgrade": "upgrades",
}
_log = logging.getLogger("compatgate.notices")


class IncidentFilters(ListQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of incidents."""

    kind: IncidentKind | None = None
    state: IncidentState | None = None
    snoozed: (
        Annotated[bool, Meta(description="for open incidents: whether they are snoozed")] | None
    ) = None
    owner: Annotated[Filter, Meta(description="owner of an affected object")] | None = None


class Attention(Struct, frozen=True):
    """Conditions that need attention, for the first page; leading are a few of each kind."""

    leading: Sequence[IncidentBody]
    counts: dict[IncidentKind, dict[str, int]]
    snoozed: int
    surveyed_at: datetime | None


class IncidentService:
    """The incidents of one database; ``is_watched``: a thread of this process surveys."""

    show = in_reading(incidents.find_incident)

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
        self._surveyed: tuple[int, int, int] | None = None
        self.is_watched = False

    def survey(self, *, thorough: bool = True) -> list[int]:
        """Open, continue and end incidents now; return the ids of those that opened.

        A thorough survey takes the time that it needs.
        """
        now, snapshot = clock.now(), self._snapshots.current()
        seconds = _THOROUGH_SECONDS if thorough else _INLINE_SECONDS
        with self._database.reading() as session:
            survey = self._surveyor.survey(session, snapshot, now, seconds=seconds)
        with self._database.working() as session:
            incidents.lock_mark(session, SURVEY)
            # Until 0.2 a person could resolve an incident; what still holds opens again.
            resolved = update(Incident).where(Incident.state == "resolved")
            session.execute(resolved.values(state="ended", ended_at=now - FLAPPING))
            before = incidents.load_known(session, [one.key for one in survey.conditions])
            changes = reconcile(before, survey.conditions, survey.covered, now)
            opened = incidents.apply_changes(session, changes, before, now)
            incidents.write_mark(session, SURVEY, at=now)
        self._surveyed = snapshot.state
        return opened

    def survey_if_due(self) -> bool:
        """Survey if no process did so lately, or the matrix has changed; return whether it did."""
        now, state = clock.now(), self._snapshots.current().state
        is_new = self._surveyed is not None and state != self._surveyed
        early = _CHANGED if is_new else timedelta(0)
        with self._database.reading() as session:
            until = incidents.read_mark(session, SURVEY)[2]
        if until is not None and until > now + early:
            return False
        with self._database.working() as session:
            if not incidents.take_lease(session, SURVEY, now + early, now + PACE):
                self._surveyed = state
                return False
        self.survey()
        return True

    def prune(self) -> None:
        """Delete incidents that ended long ago."""
        with self._database.working() as session:
            old = and_(Incident.state == "ended", Incident.ended_at < clock.now() - KEPT)
            session.execute(delete(Incident).where(or_(old, Incident.kind.not_in(KINDS))))

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

    def count(self) -> dict[IncidentKind, dict[str, int]]:
        """Return the number of incidents that need attention, by kind and level."""
        with self._database.reading() as session:
            return _count_active(session)

    def attention(self, each: int) -> Attention:
        """Return what needs attention: so many incidents of a kind and level, and all counts.

        Of a kind the worst come first, then those that concern most, then the latest.
        """
        self.refresh()
        order = (Incident.severity, Incident.count.desc(), Incident.first_seen.desc())
        rank = func.row_number().over(
            partition_by=(Incident.kind, Incident.severity), order_by=(*order, Incident.id.desc())
        )
        now = clock.now()
        active = incidents.is_active(now)
        ranked = select(Incident.id, rank.label("rank")).where(active).subquery()
        query = select(Incident).join(ranked, ranked.c.id == Incident.id)
        query = query.where(ranked.c.rank <= each).order_by(ranked.c.rank)
        snoozed = select(func.count()).where(incidents.is_snoozed(now))
        with self._database.reading() as session:
            rows = map(incidents.describe, session.scalars(query))
            return Attention(
                sorted(rows, key=lambda row: KINDS.index(row.kind)),
                _count_active(session),
                session.execute(snoozed).scalar_one(),
                incidents.read_mark(session, SURVEY)[1],
            )

    def list(self, **filters: Any) -> Page[IncidentBody]:
        """Return incidents, the newest first, each with the first of its members."""
        asked, now = IncidentFilters(**filters), clock.now()
        if not self.is_watched and asked.cursor is None:
            self.refresh()
        kinds = (asked.kind,) if asked.kind else KINDS
        query = select(Incident, Incident.id).where(Incident.kind.in_(kinds))
        query = narrow(query, {Incident.state: asked.state})
        if asked.snoozed is not None:
            wanted = incidents.is_snoozed if asked.snoozed else incidents.is_active
            query = query.where(wanted(now))
        if asked.owner is not None:
            line = f"\n{asked.owner}\n"
            query = query.where(Incident.owner_lines.contains(line, autoescape=True))
        part: dict[str, Any] = {"cursor": asked.cursor, "limit": asked.limit, "descending": True}
        with self._database.reading() as session:
            return page(
                session, query, Incident.id, lambda row: incidents.describe(row.Incident), **part
            )

    def snooze(self, number: int, until: datetime, by: Authorship) -> IncidentBody:
        """Hide an open incident until a time; metrics and webhook leave it out before that."""
        now = clock.now()
        if not now < until <= now + LONGEST_SNOOZE:
            hint = f"a time in the next {LONGEST_SNOOZE.days} days"
            raise BadInput("out of range", field="until", value=clock.iso(until), hint=hint)
        values = {"snoozed_until": until, "snoozed_by": by.author, "comment": by.reason or None}
        return self._act(number, "snooze", by, values)

    def reopen(self, number: int, by: Authorship) -> IncidentBody:
        """Show a snoozed incident again."""
        return self._act(number, "reopen", by, incidents.UNTOUCHED)

    def _act(
        self, number: int, action: str, by: Authorship, values: dict[str, Any]
    ) -> IncidentBody:
        with self._database.writing() as session:
            row = incidents.find_incident(session, number)
            if row.state != "open":
                what, hint = f"incident {row.id} has ended", "its condition no longer holds"
                raise Conflict(what, field="id", value=row.id, hint=hint)
            mine = Incident.id == number
            key = session.execute(select(Incident.key).where(mine)).scalar_one()
            session.execute(update(Incident).where(mine).values(**values))
            detail = {"id": number, "key": key, "message": row.message, "reason": by.reason}
            if until := values.get("snoozed_until"):
                detail["until"] = clock.iso(until)
            audit.append(session, by.author, f"incident.{action}", str(number), detail)
            return incidents.find_incident(session, number)


def _count_active(session: Session) -> dict[IncidentKind, dict[str, int]]:
    query = select(Incident.kind, Incident.level, func.count())
    query = query.where(incidents.is_active(clock.now())).group_by(Incident.kind, Incident.level)
    counts: dict[IncidentKind, dict[str, int]] = {}
    for kind, level, number in session.execute(query):
        counts.setdefault(kind, {})[level] = number
    return counts


def member_link(member: IncidentMember) -> str:
    """Return the address of the page about a member."""
    if member.about == "drift":
        return link("drift", target=member.name)
    return link(_PATHS[member.about], member.name)
