"""Survey conditions that need attention in matrix, facts, evidence and records."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy.orm import Session

from compatgate.core.incidents import KINDS, Condition, IncidentKind, IncidentMember
from compatgate.core.rule import Verdict
from compatgate.documents.specs import WaiverDoc
from compatgate.service.attention import conditions, records
from compatgate.service.gate.advice.pairs import shared_fit_cache
from compatgate.service.gate.decisions.service import list_asked_stacks
from compatgate.service.matrix.documents import repository as documents
from compatgate.service.matrix.snapshots.snapshot import Snapshot

if TYPE_CHECKING:
    from compatgate.service.changes.upgrades.service import Upgrades
    from compatgate.service.nodes.service import Nodes
    from compatgate.service.runs.evidence.baselines import BaselineService
    from compatgate.service.runs.queue.service import Runs

_PERIOD = timedelta(days=30)
"""Decisions of so long count as use."""
_MAX_DECISIONS = 5_000
_MAX_VERDICTS = 300
_LATEST_RUNS = 60
_MAX_CACHED = 3_000
_MAX_BASELINES = 200
_MAX_UPGRADES = 50


class Survey(Struct, frozen=True):
    """The findings of a survey; ``covered``: kinds that it looked for completely."""

    conditions: tuple[Condition, ...]
    covered: frozenset[IncidentKind]


class Surveyor:
    """Looks for conditions; several threads may ask."""

    def __init__(
        self, runs: Runs, baselines: BaselineService, nodes: Nodes, upgrades: Upgrades
    ) -> None:
        self._runs = runs
        self._baselines = baselines
        self._nodes = nodes
        self._upgrades = upgrades
        self._verdicts: tuple[Any, dict[str, Verdict | None]] = (None, {})
        self._impossible: tuple[Snapshot, date, conditions.Partial] | None = None

    def survey(
        self, session: Session, snapshot: Snapshot, now: datetime, *, seconds: float
    ) -> Survey:
        """Return the conditions now; entries have the time, and again recorded questions."""
        covered = set(KINDS)
        impossible = self._find_impossible(snapshot, now, seconds)
        if not impossible.complete:
            covered.discard("entry-impossible")
        since = now - _PERIOD
        recorded = list_asked_stacks(
            session, None, since, most=_MAX_DECISIONS, verdicts=_MAX_VERDICTS
        )
        asked = records.latest_questions(recorded.found)
        # Verdicts are kept for a matrix, its evidence and an hour.
        key = (snapshot.state, now.replace(minute=0, second=0, microsecond=0))
        if self._verdicts[0] != key or len(self._verdicts[1]) > _MAX_CACHED:
            self._verdicts = (key, {})
        flips = records.find_flips(asked, snapshot, now, seconds, self._verdicts[1])
        if not flips.complete:
            covered.discard("verdict-flipped")
        runs = self._runs.list(state="ended", limit=_LATEST_RUNS).items
        proposed = self._baselines.list(state="proposed", limit=_MAX_BASELINES).items
        upgrades = self._upgrades.watch(session, limit=_MAX_UPGRADES)
        everything = (
            *conditions.find_unusable_targets(snapshot),
            *records.find_upgrades(upgrades, snapshot, now),
            *records.find_drift(self._nodes.group_drift(), snapshot, upgrades),
            *records.find_contradictions(self._runs.warnings()),
            *impossible.conditions,
            *records.find_revoked_in_use(asked, snapshot),
            *flips.conditions,
            *conditions.find_evidence(snapshot, now),
            *records.find_failed_runs(runs, now, snapshot.documents),
            *conditions.find_ending_waivers(snapshot, now.date()),
            *conditions.find_old_branches(snapshot, now),
            *records.find_proposed_baselines(proposed),
        )
        return Survey(_with_owners(session, everything, snapshot), frozenset(covered))

    def _find_impossible(
        self, snapshot: Snapshot, now: datetime, seconds: float
    ) -> conditions.Partial:
        """Find the impossible entries; once all were evaluated, matrix, facts and day decide."""
        known = self._impossible
        if known is not None and known[0] is snapshot and known[1] == now.date():
            return known[2]
        fits = shared_fit_cache(snapshot.facts)
        entries = conditions.find_impossible_entries(snapshot, fits, now, seconds)
        self._impossible = (snapshot, now.date(), entries) if entries.complete else None
        return entries


def _with_owners(
    session: Session, surveyed: Sequence[Condition], snapshot: Snapshot
) -> tuple[Condition, ...]:
    """Fill in owners and labels of entries, which the snapshot does not hold."""
    names = {m.name for one in surveyed for m in one.members if m.about == "entry"}
    stored = documents.find_documents(session, [("Entry", name) for name in sorted(names)])

    def fill(member: IncidentMember) -> IncidentMember:
        document = stored.get(("Entry", member.name))
        if member.about != "entry" or document is None or isinstance(document, WaiverDoc):
            return member
        owner = document.metadata.owner
        for target in member.targets:
            known = snapshot.documents.get(target)
            owner = owner or (known.metadata.owner if known else None)
        return replace(member, owner=owner, labels=document.metadata.labels)

    return tuple(replace(one, members=tuple(map(fill, one.members))) for one in surveyed)
