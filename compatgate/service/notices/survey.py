"""Survey conditions that need attention in matrix, facts, evidence and records."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy.orm import Session

from compatgate.core.incidents import KINDS, Condition, IncidentKind, Member
from compatgate.core.rule import Verdict
from compatgate.documents.specs import WaiverDoc
from compatgate.service.gate.decision_counts import AskedStack, list_asked_stacks
from compatgate.service.gate.snapshot import Snapshot
from compatgate.service.matrix import repository as documents
from compatgate.service.matrix.pairs import shared_fit_cache
from compatgate.service.notices import conditions, records
from compatgate.service.notices.releases import (
    KnownReleases,
    find_new_releases,
    learn_releases,
)

if TYPE_CHECKING:
    from compatgate.service.baselines.service import BaselineService
    from compatgate.service.nodes.service import Nodes
    from compatgate.service.runs.service import Runs
    from compatgate.service.upgrades.service import Upgrades

_PERIOD = timedelta(days=30)
"""Decisions of so long count as use."""
_MAX_DECISIONS = 5_000
_MAX_VERDICTS = 300
_LATEST_RUNS = 60
_MAX_CACHED = 3_000
_MAX_BASELINES = 200
_MAX_UPGRADES = 50
Failing = Sequence[tuple[str, str, datetime]]
"""Channels that do not take notices: name, answer, and when that began."""


class Survey(Struct, frozen=True):
    """The findings of a survey.

    Attributes:
        covered: kinds that it looked for completely.
        releases: what is known of the facts' releases from now on; None: it did not look.
    """

    found: tuple[Condition, ...]
    covered: frozenset[IncidentKind]
    releases: KnownReleases | None = None


class Surveyor:
    """Looks for conditions; several threads may ask.

    Args:
        runs: of the gate.
        baselines: of the gate.
        nodes: of the gate.
        upgrades: of the gate.
    """

    def __init__(
        self, runs: Runs, baselines: BaselineService, nodes: Nodes, upgrades: Upgrades
    ) -> None:
        self._runs = runs
        self._baselines = baselines
        self._nodes = nodes
        self._upgrades = upgrades
        self._again: tuple[Any, dict[str, Verdict | None]] = (None, {})
        self._impossible: tuple[Snapshot, date, conditions.ImpossibleEntries] | None = None

    def survey(
        self,
        session: Session,
        snapshot: Snapshot,
        now: datetime,
        *,
        seconds: float,
        failing: Failing = (),
        releases: KnownReleases | None = None,
    ) -> Survey:
        """Return the conditions now.

        Args:
            session: to read recorded decisions and documents from.
            snapshot: with matrix, facts and evidence.
            now: the time.
            seconds: time to evaluate entries, and again to re-evaluate recorded questions.
            failing: channels that do not take notices.
            releases: what is known of the facts' releases; None: do not look for new ones.
        """
        covered = set(KINDS)
        impossible = self._find_impossible(snapshot, now, seconds)
        if not impossible.complete:
            covered.discard("entry-impossible")
        asked = _list_questions(session, now)
        flips = records.find_flips(asked, snapshot, now, seconds, self._verdicts(snapshot, now))
        if not flips.complete:
            covered.discard("verdict-flipped")
        learned = learn_releases(releases, snapshot, now) if releases is not None else None
        if learned is None:
            covered.discard("release")
        runs = self._runs.list(state="ended", limit=_LATEST_RUNS).items
        proposed = self._baselines.list(state="proposed", limit=_MAX_BASELINES).items
        watched = self._upgrades.watch(session, limit=_MAX_UPGRADES)
        found = (
            *conditions.find_unusable_targets(snapshot),
            *conditions.find_upgrades(watched, snapshot, now),
            *records.find_drift(
                self._nodes.lately.drifted(), snapshot, conditions.list_rolling(watched)
            ),
            *records.find_contradictions(self._runs.warnings()),
            *impossible.found,
            *records.find_revoked_in_use(asked, snapshot),
            *flips.found,
            *conditions.find_evidence(snapshot, now),
            *conditions.find_failed_runs(runs, now, snapshot.documents),
            *records.find_failing_channels(failing),
            *conditions.find_ending_waivers(snapshot, now.date()),
            *conditions.find_old_branches(snapshot, now),
            *records.find_proposed_baselines(proposed),
            *(find_new_releases(learned, snapshot) if learned else ()),
        )
        return Survey(_with_owners(session, found, snapshot), frozenset(covered), learned)

    def _find_impossible(
        self, snapshot: Snapshot, now: datetime, seconds: float
    ) -> conditions.ImpossibleEntries:
        """Find the impossible entries; once all were evaluated, matrix, facts and day decide."""
        known = self._impossible
        if known is not None and known[0] is snapshot and known[1] == now.date():
            return known[2]
        fits = shared_fit_cache(snapshot.facts)
        found = conditions.find_impossible_entries(snapshot, fits, now, seconds)
        self._impossible = (snapshot, now.date(), found) if found.complete else None
        return found

    def _verdicts(self, snapshot: Snapshot, now: datetime) -> dict[str, Verdict | None]:
        """Return the cache of today's verdicts: of this matrix, evidence and hour."""
        key = (snapshot.state, now.replace(minute=0, second=0, microsecond=0))
        known, found = self._again
        if known != key or len(found) > _MAX_CACHED:
            found = {}
            self._again = (key, found)
        return found


def _list_questions(session: Session, now: datetime) -> list[AskedStack]:
    asked = list_asked_stacks(
        session, None, now - _PERIOD, most=_MAX_DECISIONS, verdicts=_MAX_VERDICTS
    )
    return records.latest_questions(asked.found)


def _with_owners(
    session: Session, found: Sequence[Condition], snapshot: Snapshot
) -> tuple[Condition, ...]:
    """Fill in owners and labels of entries, which the snapshot does not hold."""
    names = {m.name for one in found for m in one.members if m.about == "entry"}
    stored = documents.find_documents(session, [("Entry", name) for name in sorted(names)])

    def fill(member: Member) -> Member:
        document = stored.get(("Entry", member.name))
        if member.about != "entry" or document is None or isinstance(document, WaiverDoc):
            return member
        owner = document.metadata.owner
        for target in member.targets:
            known = snapshot.documents.get(target)
            owner = owner or (known.metadata.owner if known else None)
        return replace(member, owner=owner, labels=document.metadata.labels)

    return tuple(
        replace(one, members=tuple(map(fill, one.members)))
        if any(member.about == "entry" for member in one.members)
        else one
        for one in found
    )


def encode_releases(known: KnownReleases) -> str:
    """Return what is known of releases as text to store."""
    return msgspec.json.encode(known).decode()


def decode_releases(text: str) -> KnownReleases:
    """Return what was stored by `encode_releases`; of an empty object: nothing."""
    return msgspec.json.decode(text, type=KnownReleases)
