"""Survey conditions that need attention in matrix, facts, releases, evidence and records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy.orm import Session

from compatgate.core.evaluate import evaluate
from compatgate.core.facts import Facts
from compatgate.core.incidents import KINDS, Condition, IncidentKind, Member
from compatgate.core.request import Pool, Target
from compatgate.core.rule import Verdict
from compatgate.core.stack import parse_stack
from compatgate.documents.specs import WaiverDoc
from compatgate.errors import CompatgateError
from compatgate.service.gate.decision_counts import AskedStack, list_asked_stacks
from compatgate.service.gate.snapshot import Snapshot
from compatgate.service.matrix import repository as documents
from compatgate.service.matrix.pairs import shared_fit_cache
from compatgate.service.notices import conditions, records
from compatgate.service.notices.conditions import make_condition, target_member

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


NEWS = timedelta(days=14)
"""A release is news for so long."""
_MAX_CHECKED = 3
"""Newest of the new releases of a framework whose builds are evaluated on each pool."""
_MAX_NAMED = 4
_PoolKey = tuple[str, str, str, str, str]


class LearnedReleases(Struct, frozen=True):
    """Releases of one component that are new in the facts.

    Attributes:
        unlocks: target to what works there, or is newer there, in words.
    """

    component: str
    versions: tuple[str, ...]
    at: datetime
    unlocks: dict[str, str] = {}


class KnownReleases(Struct, frozen=True):
    """Releases that the service has seen in the facts; a known release is never forgotten.

    Attributes:
        digest: of the facts that were looked at last.
        versions: by component.
        learned: in the last days.
    """

    digest: str = ""
    versions: dict[str, tuple[str, ...]] = {}
    learned: tuple[LearnedReleases, ...] = ()


def list_releases(facts: Facts) -> dict[str, tuple[str, ...]]:
    """Return the releases that facts know, by component, ascending."""
    branches = facts.driver_branches.branches.values()
    found = {
        "cuda": tuple(one.version.text for one in facts.cuda_driver.toolkits),
        "cudnn": tuple(one.version.text for one in facts.cudnn.releases),
        "nccl": tuple(one.version.text for one in facts.nccl.releases),
        "driver": tuple(branch.last.text for branch in branches if branch.last),
    }
    for name in facts.framework_names:
        framework = facts.framework(name)
        if framework is not None:
            found[name] = tuple(one.version.text for one in framework.releases)
    return found


def learn_releases(known: KnownReleases, snapshot: Snapshot, now: datetime) -> KnownReleases:
    """Return what is known with the facts of a snapshot; the first look learns nothing new.

    Args:
        known: before.
        snapshot: with facts and targets.
        now: when the releases are learned.
    """
    facts = snapshot.facts
    recent = tuple(one for one in known.learned if now - one.at < NEWS)
    if known.digest == facts.digest:
        return KnownReleases(known.digest, known.versions, recent)
    versions = dict(known.versions)
    learned = []
    for component, listed in list_releases(facts).items():
        before = set(versions.get(component, ()))
        new = tuple(one for one in listed if one not in before)
        if new and component in versions:
            unlocks = find_unlocked(component, new, snapshot, now)
            learned.append(LearnedReleases(component, new, now, unlocks))
        versions[component] = (*versions.get(component, ()), *new)
    return KnownReleases(facts.digest, versions, (*recent, *learned))


def find_unlocked(
    component: str, versions: Sequence[str], snapshot: Snapshot, now: datetime
) -> dict[str, str]:
    """Return where new releases work by the vendors' facts: target to words.

    Of a driver: the targets with its branch. Of CUDA, cuDNN and NCCL nothing is said: whether they
    work depends on the stack.
    """
    if component == "driver":
        return _same_branch(versions, snapshot)
    framework = snapshot.facts.framework(component)
    if framework is None:
        return {}
    wanted = set(versions[-_MAX_CHECKED:])
    found: dict[str, str] = {}
    known: dict[_PoolKey, bool] = {}
    for release in reversed(framework.releases):
        for build in release.preferred if release.version.text in wanted else ():
            label = f"+{build.label}" if build.label else ""
            text = f"{release.version.text}{label}"
            for target in snapshot.targets.values():
                if target.name not in found and any(
                    _works(component, text, pool, snapshot.facts, now, known)
                    for pool in target.pools
                ):
                    found[target.name] = f"{component} {text} works on it by the vendors' facts"
    return found


def _works(
    component: str,
    version: str,
    pool: Pool,
    facts: Facts,
    now: datetime,
    known: dict[_PoolKey, bool],
) -> bool:
    sku = pool.gpu.sku if pool.gpu else ""
    driver = pool.driver.text if pool.driver else ""
    key = (version, sku, driver, pool.os, pool.cpu)
    if key not in known:
        try:
            stack = parse_stack({component: version})
            verdict = evaluate(stack, Target("", (pool,)), facts=facts, now=now, with_fixes=False)
            known[key] = verdict.verdict in ("pass", "warn")
        except CompatgateError:
            known[key] = False
    return known[key]


def _same_branch(versions: Sequence[str], snapshot: Snapshot) -> dict[str, str]:
    newest = {one.partition(".")[0]: one for one in versions}
    found = {}
    for target in snapshot.targets.values():
        for pool in target.pools:
            branch = str(pool.driver.major) if pool.driver else ""
            if branch in newest and pool.driver and pool.driver.text != newest[branch]:
                has = f"it has {pool.driver.text}"
                found[target.name] = f"driver {newest[branch]} is newer in the same branch; {has}"
    return found


def find_new_releases(known: KnownReleases, snapshot: Snapshot) -> Iterator[Condition]:
    """Yield releases that are news; members are the targets where they unlock something."""
    for one in known.learned:
        some = one.versions[-_MAX_NAMED:]
        more = f" and {len(one.versions) - len(some)} more" if len(one.versions) > len(some) else ""
        text = f"the facts know {one.component} {', '.join(reversed(some))}{more} now"
        if one.unlocks:
            text += "; it is newer for " if one.component == "driver" else "; it works on "
            text += f"{len(one.unlocks)} of {len(snapshot.targets)} targets"
        members = [
            target_member(snapshot, name, words) for name, words in sorted(one.unlocks.items())
        ] or [Member("release", one.component, text)]
        cause = f"{one.component}\n{one.at.isoformat()}"
        yield make_condition("release", cause, "info", text, members, one.at)
