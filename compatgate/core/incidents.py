"""Keep incidents: what needs attention, grouped by cause, from when it was first seen to its end.

A survey finds conditions, such as nodes that drifted; each condition has a cause and members (the
targets, entries or runs concerned). `reconcile` compares conditions with the incidents known before
and says what changed. It is a pure function: the same survey never opens an incident twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Literal, get_args

from msgspec import Struct

IncidentKind = Literal[
    "target-unusable",
    "upgrade-rollback",
    "drift",
    "upgrade-held",
    "entry-contradicted",
    "entry-impossible",
    "entry-revoked",
    "verdict-flipped",
    "evidence",
    "run-failed",
    "evidence-ending",
    "waiver-ending",
    "driver-branch",
    "baseline-proposed",
]
"""In the order in which a person on duty wants them: broken things first."""
KINDS: tuple[IncidentKind, ...] = get_args(IncidentKind)
TITLES: dict[IncidentKind, str] = {
    "target-unusable": "Targets that cannot be used",
    "upgrade-rollback": "Upgrades to roll back",
    "drift": "Drifted nodes",
    "upgrade-held": "Upgrades that wait for a person",
    "entry-contradicted": "Entries that a run contradicts",
    "entry-impossible": "Blessed entries that cannot work",
    "entry-revoked": "Revoked entries in use",
    "verdict-flipped": "Verdicts that flipped since they were asked",
    "evidence": "Required evidence that failed, is old or is missing",
    "run-failed": "Canary runs that did not pass",
    "evidence-ending": "Evidence that ends soon",
    "waiver-ending": "Waivers that end soon",
    "driver-branch": "Driver branches at their end of life",
    "baseline-proposed": "Baselines to approve",
}
IncidentLevel = Literal["fail", "warn", "info"]
LEVELS: tuple[IncidentLevel, ...] = get_args(IncidentLevel)  # the worst first
IncidentState = Literal["open", "ended"]  # ``ended``: the condition no longer holds
Subject = Literal[
    "target", "entry", "waiver", "run", "baseline", "drift", "verdict", "upgrade",
]  # fmt: skip
MAX_MEMBERS = 500  # members of an incident that are kept; all are counted
FLAPPING = timedelta(minutes=15)
"""A condition that comes back within so long after its end continues the same incident."""


class IncidentMember(Struct, frozen=True):
    """An object that a condition concerns.

    Attributes:
        note: what is wrong with it, as the end of a sentence that begins with its name.
        targets: that it belongs to; of a target, its own name.
        count: how much of it is concerned, such as nodes.
    """

    about: Subject
    name: str
    note: str
    owner: str | None = None
    labels: Mapping[str, str] = {}
    targets: tuple[str, ...] = ()
    count: int = 1


class Condition(Struct, frozen=True):
    """Something that needs attention now."""

    kind: IncidentKind
    cause: str  # what its members have in common; with the kind, its identity
    level: IncidentLevel
    message: str
    members: tuple[IncidentMember, ...]  # at most `MAX_MEMBERS`
    more: int = 0  # how much is concerned that no member stands for
    since: datetime | None = None  # when it began, where that is known

    @property
    def key(self) -> str:
        """Return the identity, short whatever the cause."""
        digest = hashlib.sha256(self.cause.encode("utf-8", "surrogatepass")).hexdigest()
        return f"{self.kind}:{digest[:24]}"

    @property
    def count(self) -> int:
        """Return how much is concerned."""
        return sum(member.count for member in self.members) + self.more


class KnownIncident(Struct, frozen=True):
    """The state of an incident after the previous survey."""

    key: str
    kind: IncidentKind
    level: IncidentLevel
    state: IncidentState
    episode: int  # 1, 2, 3, ...; one more each time that it happens again
    ended_at: datetime | None = None  # when its condition was gone


Action = Literal["open", "refresh", "end"]
"""``open``: it is new or happens again; ``refresh``: it goes on; ``end``: its condition is gone."""


class IncidentChange(Struct, frozen=True):
    """The effect of a survey on an incident."""

    key: str
    action: Action
    episode: int
    condition: Condition | None = None  # None: it is gone

    @property
    def state(self) -> IncidentState:
        """Return the state of the incident from now on."""
        return "ended" if self.action == "end" else "open"


def reconcile(
    known: Mapping[str, KnownIncident],
    conditions: Iterable[Condition],
    covered: Collection[IncidentKind],
    now: datetime,
) -> list[IncidentChange]:
    """Return what changed between incidents and the conditions of a survey.

    Of several conditions with one key, the first counts. ``covered`` are the kinds that the survey
    looked for completely; incidents of others do not end.
    """
    changes: dict[str, IncidentChange] = {}
    for condition in conditions:
        if condition.key not in changes:
            before = known.get(condition.key)
            key, episode = condition.key, before.episode if before else 0
            ended = before.ended_at if before else None
            flaps = ended is not None and now - ended < FLAPPING
            if before is None or (before.state == "ended" and not flaps):
                change = IncidentChange(key, "open", episode + 1, condition)
            else:
                change = IncidentChange(key, "refresh", episode, condition)
            changes[condition.key] = change
    for key, before in known.items():
        if key not in changes and before.kind in covered and before.state != "ended":
            changes[key] = IncidentChange(key, "end", before.episode)
    return [*changes.values()]
