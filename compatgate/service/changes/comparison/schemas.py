"""Define questions about changes, and their answers, as REST carries them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from compatgate.core.compare.differences import Cause, Change
from compatgate.core.compare.frontier import DriverFrontier
from compatgate.core.compare.plan import CauseGroup, OwedRun
from compatgate.core.compare.upgrades import EntryEdit
from compatgate.core.compare.waves import UpgradeOrder
from compatgate.core.matrix import EntryStatus
from compatgate.core.request import Mode
from compatgate.core.rule import Finding, Outcome
from compatgate.kit.http.schemas import StackValue, Text
from compatgate.service.gate.questions.schemas import DEGRADED, DegradedBody, PoolBody
from compatgate.service.matrix.documents.schemas import ENTRY, DocumentName
from compatgate.service.matrix.proposals.schemas import DAYS, MAX_DAYS

PACKAGES_DECISIONS = 10_000
"""Default number of decisions in the packages report, the newest."""
DECISIONS = 100_000
"""Default number of decisions that a backtest reads, the newest."""
QUESTIONS = 5_000
"""Default number of different questions that a backtest decides, the latest."""
MAX_QUESTIONS = 20_000
SHOWN = 20
"""Default number of questions that are listed of each group."""
MAX_SHOWN = 1_000
MAX_DELETED = 10_000
MAX_TEXT = 64 * 1024 * 1024
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


class NodeQuestion(Struct, frozen=True):
    """A Kubernetes node."""

    labels: Annotated[
        dict[str, str],
        Meta(
            min_length=1,
            description="labels; those of GPU Feature Discovery name the GPUs and the driver",
            examples=[{"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}],
        ),
    ]
    name: str | None = None


class WhatIfRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A what-if question: `target`, `node` or both."""

    set: Annotated[
        dict[str, StackValue],
        Meta(
            min_length=1,
            description="`driver gpu os cpu` change the pools, other components change every stack",
            examples=[{"driver": "580.95.05"}],
        ),
    ]
    target: Annotated[Text | None, Meta(description="name of a target")] = None
    pool: Annotated[Text | None, Meta(description="change only this pool")] = None
    node: NodeQuestion | None = None


class PoolWhatIfBody(Struct, frozen=True, forbid_unknown_fields=True):
    """An entry on a pool: `lost` lists new findings, `gained` resolved ones."""

    pool: str
    stack: Annotated[dict[str, Any], Meta(description="stack that represents the entry")]
    before: Outcome
    after: Outcome
    change: Change
    cause: Cause | None
    lost: list[Finding]
    gained: list[Finding]


class EntryWhatIfBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The effect of a change on one entry.

    `cause` says why the entry gets worse: the vendors' `facts` fail it, the `matrix` does not bless
    it, or canary `evidence` is missing.
    """

    entry: str
    status: Literal["blessed", "deprecated"]
    verdict: Outcome
    change: Change
    cause: Cause | None
    open: Annotated[list[str], Meta(description="reasons why the entry cannot be evaluated")]
    pools: list[PoolWhatIfBody]


class WhatIfBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The effect of a change. `fail`: an entry in use breaks; `unknown`: one cannot be decided.

    `host` lists findings about the changed pools, whatever runs on them.
    """

    target: str
    set: dict[str, Any]
    verdict: Outcome
    allowed: Annotated[bool, Meta(description="true: the target's policy allows the change")]
    mode: Mode
    summary: str
    host: list[Finding]
    entries: Annotated[list[EntryWhatIfBody], Meta(description="entries, worst first")]
    remarks: list[str]
    before: list[PoolBody]
    after: list[PoolBody]
    matrix_revision: int
    facts: str
    degraded: Annotated[DegradedBody | None, DEGRADED] = None


WHAT_IF_EXAMPLES: dict[str, Any] = {
    "driver": {"target": "prod-a100", "set": {"driver": "580.95.05"}},
    "gpu": {"target": "prod-a100", "pool": "a100-80", "set": {"gpu": "H100-SXM5-80GB"}},
    "node": {
        "target": "prod-a100",
        "node": {"labels": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}},
        "set": {"driver": "580.95.05"},
    },
}


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
    host: Annotated[list[Finding], Meta(description="new findings about the pools")]
    groups: list[CauseGroup]
    subjects: Annotated[list[SubjectBody], Meta(description="entries and stacks, worst first")]
    edits: list[EntryEdit]
    entries_yaml: Annotated[str, Meta(description="edited entries, to import after review")]
    owed: Annotated[list[OwedRun], Meta(description="canary suites to run on the new driver")]
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


class BacktestRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A change to backtest: documents to store, documents to delete, or both."""

    documents: Annotated[
        list[dict[str, Any]],
        Meta(description="documents to create or change, in the format of matrix files"),
    ] = []
    yaml: Annotated[
        str, Meta(max_length=MAX_TEXT, description="documents to create or change, as YAML")
    ] = ""
    delete: Annotated[list[DocumentName], Meta(max_length=MAX_DELETED)] = []
    file: Annotated[
        str, Meta(min_length=1, max_length=200, description="file name to show in errors")
    ] = "request"
    days: Annotated[int, Meta(ge=1, le=MAX_DAYS, description="number of days of decisions")] = DAYS
    decisions: Annotated[
        int,
        Meta(ge=1, le=DECISIONS, description="maximum number of decisions to read, newest first"),
    ] = DECISIONS
    questions: Annotated[
        int,
        Meta(
            ge=1,
            le=MAX_QUESTIONS,
            description="maximum number of questions to decide, latest first",
        ),
    ] = QUESTIONS
    shown: Annotated[
        int, Meta(ge=0, le=MAX_SHOWN, description="number of questions to list in each group")
    ] = SHOWN


BACKTEST_EXAMPLES: dict[str, Any] = {
    "entry": {
        "documents": [
            {
                "apiVersion": "compatgate.dev/v1",
                "kind": "Entry",
                **{name: ENTRY[name] for name in ("metadata", "spec")},
            }
        ],
        "days": 7,
    }
}


class DependentTargetBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A target of the entry; `pools` are those with a GPU and driver that the entry is for.

    `stops`: its policy requires an entry and denies.
    """

    target: str
    owner: str | None
    mode: Mode
    stops: bool
    pools: list[str]
    declared_nodes: int
    reported_nodes: Annotated[
        int, Meta(description="number of reported nodes with a GPU and driver of the entry")
    ]


class DependentStackBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A stack that the entry decided; `lost`: the gate would not allow it without the entry.

    `lost` is null where the question cannot be re-evaluated.
    """

    verdict_id: str
    target: str
    stack: dict[str, Any]
    image: str | None
    decisions: int
    first: datetime
    last: datetime
    lost: bool | None


class DependentNodeBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A reported node of one of the targets, whose GPU and driver the entry is for."""

    cluster: str
    name: str
    targets: list[str]
    driver: str | None


class DependentsBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The dependents of an entry. `left_out` lists parts that exceeded a limit."""

    entry: str
    owner: str | None
    status: EntryStatus
    since: Annotated[datetime, Meta(description="time of the first recorded question")]
    targets: list[DependentTargetBody]
    stacks: Annotated[list[DependentStackBody], Meta(description="recorded stacks, latest first")]
    decisions: Annotated[int, Meta(description="number of decisions based on the entry")]
    lost: Annotated[int, Meta(description="number of stacks that no other entry would allow")]
    nodes: Annotated[
        list[DependentNodeBody], Meta(description="nodes that depend on the entry, at most 500")
    ]
    node_count: int
    replaces: Annotated[list[str], Meta(description="entries that name this entry as replacement")]
    left_out: list[str]
    matrix_revision: int
