"""Define plans of upgrades as REST carries them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from compatgate.core.plan.result import (
    CauseGroup,
    DriverFrontier,
    FrameworkChange,
    OwedRun,
    UpgradeOrder,
)
from compatgate.core.request import Mode
from compatgate.core.rule import Outcome
from compatgate.core.whatif_result import Cause, Change
from compatgate.service.gate.schemas import FindingBody, PoolBody, PoolWhatIfBody, StackValue

MAX_UPGRADES = 2
MAX_LABELS = 16
Upgrade = Annotated[
    str,
    Meta(
        pattern=r"^(driver|cuda)(=[0-9]{1,4}(\.[0-9]{1,4})?)?$(?!\n)",
        description="`driver`: the newest release of the newest branch of the same kind; "
        "`driver=580`: of that branch; `cuda`: the series that the driver brings; `cuda=13.0`",
        examples=["driver", "driver=580", "cuda=13.0"],
    ),
]
Label = Annotated[str, Meta(min_length=1, max_length=317)]


class PlanRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """An upgrade to plan: `set`, `upgrade` or both."""

    set: Annotated[
        dict[str, StackValue],
        Meta(
            description="`driver gpu os cpu` change the pools, other components change every stack",
            examples=[{"driver": "580.95.05"}],
        ),
    ] = {}
    upgrade: Annotated[list[Upgrade], Meta(max_length=MAX_UPGRADES)] = []
    pool: Annotated[
        Annotated[str, Meta(min_length=1, max_length=256)] | None,
        Meta(description="change only this pool"),
    ] = None
    rack_labels: Annotated[
        list[Label],
        Meta(
            max_length=MAX_LABELS,
            description="node labels whose value names a rack; default: known topology labels",
            examples=[["example.com/rack"]],
        ),
    ] = []


class SubjectBody(Struct, frozen=True, forbid_unknown_fields=True):
    """An entry in use, or a running stack, before and after the change."""

    kind: Literal["entry", "stack"]
    name: Annotated[str, Meta(description="name of the entry, or id of the stack's newest verdict")]
    status: str
    before: Outcome
    after: Outcome
    change: Change
    cause: Cause | None
    open: Annotated[list[str], Meta(description="reasons why the subject cannot be evaluated")]
    image: str | None
    decisions: Annotated[int, Meta(description="number of decisions about the stack")]
    last: Annotated[str | None, Meta(description="time of the newest decision")]
    pools: list[PoolWhatIfBody]


class RangeChangeBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A constraint of an entry, before and after the edit."""

    before: str
    after: str


class EntryEditBody(Struct, frozen=True, forbid_unknown_fields=True):
    """An edit of an entry that the vendors' facts allow.

    `between` lists further driver branches that the edited range allows; `verified`: the edited
    entry blesses the changed stacks.
    """

    entry: str
    becomes: Annotated[str, Meta(description="name of the edited entry")]
    components: dict[str, RangeChangeBody]
    between: list[str]
    verified: bool


class PlanBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The plan of an upgrade. `fail`: something breaks; `unknown`: something cannot be decided.

    `groups` name what gets worse by cause: the vendors' facts first, then what only the matrix
    excludes (`edits` and `entries_yaml` propose the change), then missing evidence (`owed`).
    """

    target: str
    set: dict[str, Any]
    verdict: Outcome
    allowed: Annotated[bool, Meta(description="true: the target's policy allows the upgrade")]
    mode: Mode
    summary: str
    host: Annotated[list[FindingBody], Meta(description="new findings about the pools")]
    groups: list[CauseGroup]
    subjects: Annotated[list[SubjectBody], Meta(description="entries and stacks, worst first")]
    edits: list[EntryEditBody]
    entries_yaml: Annotated[str, Meta(description="edited entries, to import after review")]
    owed: Annotated[list[OwedRun], Meta(description="canary suites to run on the new driver")]
    frameworks: list[FrameworkChange]
    frontier: DriverFrontier
    order: UpgradeOrder
    remarks: list[str]
    before: list[PoolBody]
    after: list[PoolBody]
    matrix_revision: int
    facts: str


PLAN_EXAMPLES: dict[str, Any] = {
    "driver": {"upgrade": ["driver=580"]},
    "driver and CUDA": {"set": {"driver": "580.95.05"}, "upgrade": ["cuda=13.0"]},
}
