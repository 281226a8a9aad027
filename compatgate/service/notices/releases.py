"""Find releases that are new in the facts, and the stacks that they unlock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from compatgate.core.evaluate import evaluate
from compatgate.core.facts import Facts
from compatgate.core.incidents import Condition, Member
from compatgate.core.request import Pool, Target
from compatgate.core.stack import parse_stack
from compatgate.errors import CompatgateError
from compatgate.service.gate.snapshot import Snapshot
from compatgate.service.notices.conditions import make_condition, target_member

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
