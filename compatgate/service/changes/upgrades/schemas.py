"""Define upgrades and known-good states as REST carries them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from compatgate.core.upgrade_state import State, UpgradeNeed
from compatgate.core.upgrades import Answer, Event, WaveDecision
from compatgate.documents.specs import Name
from compatgate.kit.http.schemas import Filter, ListQuery, Reason

Driver = Annotated[
    str,
    Meta(
        pattern=r"^([0-9]{1,4}(\.[0-9]{1,4}){0,2}|newest)$(?!\n)",
        description="driver release, a branch for its newest release, or `newest`",
        examples=["580.95.05", "580"],
    ),
]
Duration = Annotated[str, Meta(max_length=12, examples=["24h"])]
Label = Annotated[str, Meta(min_length=1, max_length=317)]
NodeKey = Annotated[
    str,
    Meta(
        min_length=1, max_length=520, description="`cluster/name`; the name alone if it is unique"
    ),
]
Pattern = Annotated[str, Meta(max_length=128, pattern=r"^[A-Za-z0-9._*-]+$(?!\n)")]
WaveNumber = Annotated[int, Meta(ge=1, le=10_000)]


class UpgradeRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """An upgrade to propose."""

    name: Name
    target: Name
    driver: Driver
    pool: Annotated[Name, Meta(description="default: every pool")] | None = None
    soak: Annotated[Duration, Meta(description="time between waves")] = "24h"
    health: Annotated[
        bool,
        Meta(
            description="upgraded nodes must report their health (`POST /nodes/health`) before the"
            " next wave starts; false: GPU errors go unnoticed"
        ),
    ] = True
    accepts: Annotated[
        list[Name], Meta(max_length=200, description="entries that the upgrade may retire")
    ] = []
    rack_labels: Annotated[list[Label], Meta(max_length=16)] = []
    reason: Reason | None = None


class LeaveOutRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Nodes to exclude from the upgrade."""

    nodes: Annotated[list[NodeKey], Meta(min_length=1, max_length=1000)]


class KnownGoodBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The last known-good state of a target; a rollback returns to this state."""

    target: str
    revision: Annotated[int, Meta(description="matrix revision")]
    drivers: Annotated[dict[str, str], Meta(description="driver of each pool")]
    upgrade: Annotated[str, Meta(description="upgrade that marked this state as known good")]
    marked_at: datetime


class MayStartBody(WaveDecision, frozen=True, forbid_unknown_fields=True):
    """The decision on a wave, with the nodes to roll and the state to return to."""

    upgrade: str
    target: str
    driver: str
    holder: Annotated[
        str | None, Meta(description="person or tool that rolls the wave; null: none yet")
    ]
    held_until: Annotated[
        datetime | None, Meta(description="end of the hold; a new request before then extends it")
    ]
    nodes: Annotated[
        list[str], Meta(description="nodes of the wave without the new driver, `cluster/name`")
    ]
    known_good: Annotated[
        KnownGoodBody | None, Meta(description="with `roll back`: the state to return to")
    ]


class DomainBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A failure domain: nodes that take the driver together."""

    name: str
    nodes: int


class WaveBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A wave and its current answer."""

    number: int
    pools: list[str]
    domains: list[DomainBody]
    nodes: int
    upgraded: Annotated[int, Meta(description="nodes that report the new driver")]
    left_out: int
    started_at: datetime | None
    finished_at: datetime | None
    soaks_until: datetime | None
    holder: str | None
    answer: Answer
    reasons: list[str]


class UpgradeEventBody(Event, frozen=True, forbid_unknown_fields=True):
    """An event in the history of an upgrade.

    Attributes:
        actor: empty: the gate itself
    """


class UpgradeSummary(Struct, frozen=True, forbid_unknown_fields=True):
    """An upgrade in a list."""

    name: str
    target: str
    driver: str
    state: State
    waves: int
    finished: Annotated[int, Meta(description="number of finished waves")]
    nodes: int
    why: Annotated[str, Meta(description="reason for the stop or rollback")]
    author: str
    reason: str
    made_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


class RateBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Rate of events on upgraded nodes against the rate before."""

    text: str
    chance: Annotated[
        float, Meta(description="probability that chance alone explains the number of events")
    ]
    alarm: bool


class UpgradeBody(UpgradeSummary, frozen=True, forbid_unknown_fields=True):
    """An upgrade with its waves and the reasons that hold it."""

    decision: WaveDecision
    soak_s: int
    health: bool
    accepts: list[str]
    plan: Annotated[dict[str, Any], Meta(description="plan at the time of the proposal")]
    wave_list: list[WaveBody]
    approvals: Annotated[list[str], Meta(description="people who approved the upgrade")]
    missing_approvals: list[str]
    needs: list[UpgradeNeed]
    rates: list[RateBody]
    left_out: Annotated[dict[str, str], Meta(description="excluded nodes, each with the reason")]
    events: list[UpgradeEventBody]
    known_good: KnownGoodBody | None


UPGRADE_EXAMPLE: dict[str, Any] = {
    "name": "prod-580",
    "target": "prod-a100",
    "driver": "580.95.05",
    "soak": "24h",
    "reason": "the driver that fixes Xid 119",
}


class UpgradeFilters(ListQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of upgrades."""

    state: State | None = None
    target: Filter | None = None
