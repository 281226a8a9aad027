"""Notice releases that are new in the facts."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec import Struct

from compatgate.core.facts import Facts
from compatgate.core.incidents import Condition, Member
from compatgate.service.notices.conditions import Conditions

NEWS = timedelta(days=14)
"""A release is news for so long."""
_MAX_NAMED = 4


class LearnedReleases(Struct, frozen=True):
    """Releases of one component that are new in the facts."""

    component: str
    versions: tuple[str, ...]
    at: datetime


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


def _list_releases(facts: Facts) -> dict[str, tuple[str, ...]]:
    """Return the releases that facts know, by component, ascending."""
    branches = facts.driver_branches.branches.values()
    releases = {
        "cuda": tuple(one.version.text for one in facts.cuda_driver.toolkits),
        "cudnn": tuple(one.version.text for one in facts.cudnn.releases),
        "nccl": tuple(one.version.text for one in facts.nccl.releases),
        "driver": tuple(branch.last.text for branch in branches if branch.last),
    }
    for name in facts.framework_names:
        if (framework := facts.framework(name)) is not None:
            releases[name] = tuple(one.version.text for one in framework.releases)
    return releases


def learn_releases(known: KnownReleases, facts: Facts, now: datetime) -> KnownReleases:
    """Return what is known with the facts; the first look at a component learns nothing new."""
    recent = [one for one in known.learned if now - one.at < NEWS]
    if known.digest == facts.digest:
        return KnownReleases(known.digest, known.versions, tuple(recent))
    versions = dict(known.versions)
    for component, releases in _list_releases(facts).items():
        before = versions.get(component, ())
        new = tuple(one for one in releases if one not in set(before))
        if new and component in versions:
            recent.append(LearnedReleases(component, new, now))
        versions[component] = (*before, *new)
    return KnownReleases(facts.digest, versions, tuple(recent))


def find_new_releases(known: KnownReleases) -> list[Condition]:
    """Return releases that are news."""
    conditions = Conditions()
    for one in known.learned:
        versions = one.versions[-_MAX_NAMED:]
        more = len(one.versions) - len(versions)
        text = f"the facts know {one.component} {', '.join(reversed(versions))}"
        text += f" and {more} more now" if more else " now"
        member = Member("release", one.component, text)
        cause = f"{one.component}\n{one.at.isoformat()}"
        conditions.add("release", cause, "info", text, member, since=one.at)
    return conditions.list()
