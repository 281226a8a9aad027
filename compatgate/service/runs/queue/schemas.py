"""Define runs, staging hosts, suites, workloads and histories of metrics as REST carries them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct

from compatgate.canary.imports import ImportFormat
from compatgate.canary.judge.paired.blocks import PairsState
from compatgate.canary.peaks import PeakShare
from compatgate.canary.run import Against, Attribution, BlockPosition, Origin, Purpose, State
from compatgate.core.facts.nvidia import PeakKind
from compatgate.kit.clock import readable
from compatgate.kit.http.schemas import Filter, ListQuery, Since, StackBody, Text, Until
from compatgate.service.matrix.documents.evidence_schemas import RunEvidenceBody


class RunRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A request for runs: a suite for a target, with a stack or image."""

    suite: Text
    target: Annotated[
        Text | None, Meta(description="target; one run for each SKU and driver of its pools")
    ] = None
    pool: Annotated[Text | None, Meta(description="only this pool of the target")] = None
    stack: StackBody | None = None
    image: Annotated[
        Text | None, Meta(description="image under test; default: the image of each workload")
    ] = None
    entry: Annotated[Text | None, Meta(description="matrix entry under test")] = None
    host: Annotated[Text | None, Meta(description="staging host; default: any suitable host")] = (
        None
    )
    priority: Annotated[int, Meta(ge=-1000, le=1000, description="priority; higher runs first")] = 0
    against: Annotated[
        Text | None,
        Meta(
            description="entry or image to compare with in pairs; `auto`: the blessed entry that"
            " the image would replace; `history`: by baselines, in pairs only where they cannot"
            " tell; `none`: judge it alone; default: `auto` for an image on a target"
        ),
    ] = None
    explained: Annotated[
        Annotated[str, Meta(min_length=1, max_length=1000)] | None,
        Meta(
            description="why improbably good values are right: above the published peak, or better"
            " by more than 2 x; without a reason they are inconclusive"
        ),
    ] = None


class AgainstBody(Against, frozen=True, forbid_unknown_fields=True):
    """The reference of a run."""


SOURCE_PATTERN = r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?$(?!\n)"


class ImportRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A report of another tool."""

    content: Annotated[str, Meta(description="content of the report")]
    source: Annotated[
        str,
        Meta(
            pattern=SOURCE_PATTERN,
            description="measuring party, for example `acceptance-lab`: the name of the token that"
            " imports",
        ),
    ]
    format: ImportFormat | Literal["auto"] = "auto"
    file: Annotated[Text, Meta(description="file name of the report, for display")] = "report"
    target: Text | None = None
    pool: Annotated[Text | None, Meta(description="pool of the target")] = None
    sku: Annotated[
        Text | None, Meta(description="measured GPU, if the report names no product")
    ] = None
    driver: Annotated[Text | None, Meta(description="where the report does not name it")] = None
    host: Annotated[Text | None, Meta(description="where the report does not name it")] = None
    stack: Annotated[StackBody | None, Meta(description="measured components")] = None
    measured_at: Annotated[
        Annotated[datetime, Meta(tz=True)] | None,
        Meta(description="end time of the measurement, if the report states no time"),
    ] = None


class RunBody(Struct, frozen=True, forbid_unknown_fields=True):
    """One execution of a suite on one staging host for one stack."""

    id: str
    suite: str
    state: State
    stack: dict[str, Any]
    target: str | None
    pool: str | None
    entry: str | None
    image: str | None
    gpu: Annotated[str | None, Meta(description="SKU that the host must have; null: no GPU")]
    driver: Annotated[str | None, Meta(description="driver that the host should have")]
    gpus: Annotated[int, Meta(description="number of host slots that the run takes")]
    nodes: Annotated[
        int, Meta(description="number of nodes of a run; more than one only on a cluster")
    ]
    host: Annotated[str | None, Meta(description="required host; null: any suitable host")]
    priority: int
    purpose: Purpose
    attempts: int
    max_attempts: int
    doing: str
    progress: Annotated[float | None, Meta(description="share of completed work, 0 to 1")]
    left_s: Annotated[
        float | None,
        Meta(description="expected seconds from start to end, then until the end; null: not known"),
    ]
    reason: Annotated[str, Meta(description="reason for the state")]
    asked_by: str
    worker: str | None
    on_host: Annotated[str | None, Meta(description="host of the current or last attempt")]
    not_before: Annotated[datetime | None, Meta(description="earliest start of the next attempt")]
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    cancelling: Annotated[bool, Meta(description="true: cancellation was requested and is pending")]
    against: Annotated[
        AgainstBody | None,
        Meta(description="reference to compare with; null: the candidate is judged alone"),
    ] = None
    source: Annotated[
        str | None, Meta(description="format and source of an imported run; null: not imported")
    ] = None
    explained: Annotated[
        str, Meta(description="why improbably good values are right; empty: no reason was given")
    ] = ""


class StepBody(Struct, frozen=True):
    """The result of one workload with one seed."""

    name: str
    workload: str
    seed: int
    outcome: str
    reason: str
    exit_code: int | None
    image: Annotated[str | None, Meta(description="image that ran, by digest")]
    report: Annotated[dict[str, Any] | None, Meta(description="output of the workload")]
    judgement: dict[str, Any] | None
    health: Annotated[dict[str, Any] | None, Meta(description="health of the host during the step")]
    started_at: datetime | None
    finished_at: datetime | None
    attempt: int
    host: str
    pruned_at: Annotated[
        datetime | None, Meta(description="time when report, judgement and health were removed")
    ] = None
    peaks: Annotated[
        list[PeakShare], Meta(description="metrics as shares of the GPU's published peaks")
    ] = []
    origin: Annotated[
        Origin | None, Meta(description="null: recorded before origins were stored")
    ] = None
    imported: Annotated[
        Attribution | None, Meta(description="source; null: a worker measured it")
    ] = None


class BlockPositionBody(BlockPosition, frozen=True, forbid_unknown_fields=True):
    """The position of a block: A is the reference, B the candidate."""


class BlockBody(Struct, frozen=True):
    """A process of candidate or reference."""

    name: Annotated[str, Meta(description="name of the block and of its log")]
    workload: str
    seed: int
    outcome: str
    reason: str
    exit_code: int | None
    image: Annotated[str | None, Meta(description="image that ran, by digest")]
    block: BlockPositionBody
    started_at: datetime | None
    finished_at: datetime | None
    attempt: int
    host: str


class PairsBody(PairsState, frozen=True, kw_only=True):
    """The pairs of a run so far.

    Attributes:
        outcome: null: undecided
        done: number of complete pairs
        planned: number of pairs before the judge re-evaluates
        images: image digest of each arm; A: reference, B: candidate
        metrics: results by WORKLOAD.METRIC
        single: workloads that run in their own image and are not compared
    """

    sent_whole: ClassVar[bool] = True
    judgement: Annotated[  # type: ignore[assignment]  # as plain data
        dict[str, Any] | None,
        Meta(
            description="judgement of the suite; each of `metrics` has effect, low, high,"
            " confidence and outcome"
        ),
    ]
    blocks: list[BlockBody]


class RunDetailBody(RunBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A run with its steps, and its evidence if it was judged."""

    steps: list[StepBody]
    pairs: Annotated[PairsBody | None, Meta(description="null: the candidate is judged alone")] = (
        None
    )
    evidence: Annotated[
        RunEvidenceBody | None, Meta(description="null: the run is not evidence")
    ] = None


class SampleBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The measurements of a step, as a file."""

    name: Annotated[str, Meta(description="name of the file")]
    workload: str
    step: str
    text: Annotated[str, Meta(description="env, metrics and checks as JSON lines")]


class RefusedSample(Struct, frozen=True, forbid_unknown_fields=True):
    """A step that gives no sample."""

    step: str
    reason: str


class SamplesBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The measurements of a run, as files."""

    samples: list[SampleBody]
    refused: list[RefusedSample]


class RunsMade(Struct, frozen=True, forbid_unknown_fields=True):
    """The runs that were queued, or imported."""

    runs: list[RunBody]


class QuietBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A maintenance window, in which a host takes no new run."""

    start: str
    end: str
    days: list[str]
    timezone: str


class HostBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A staging host, as its worker declared it."""

    name: str
    worker: str
    executor: str
    gpu: str | None
    driver: str | None
    slots: int
    busy: Annotated[int, Meta(description="number of slots in use")]
    health: str
    quiet: list[QuietBody]
    registered_at: datetime
    seen_at: datetime
    suites: Annotated[list[str], Meta(description="suites that its worker can run")] = []
    away_since: Annotated[
        datetime | None, Meta(description="time since which it does not answer; null: it answers")
    ] = None
    away_why: Annotated[
        str | None, Meta(description="reason why it does not answer, and what to do")
    ] = None

    @property
    def away(self) -> str:
        """Return since when it does not answer, why, and what to do; "" if it answers."""
        if self.away_since is None:
            return ""
        return f"away since {readable(self.away_since)}: {self.away_why}"


class SuiteBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Workloads that are run together."""

    name: str
    description: str
    workloads: list[str]
    gpus: Annotated[
        int,
        Meta(
            description="GPUs that each run needs; without GPUs, a run is no evidence about a GPU"
        ),
    ]
    nodes: Annotated[
        int, Meta(description="number of nodes of a run; more than one only on a cluster")
    ]


class MetricBody(Struct, frozen=True):
    """A number that a workload measures."""

    unit: str
    better: Literal["lower", "higher", "either"]
    tolerance: float
    repetitions: int
    description: str
    peak: Annotated[PeakKind | None, Meta(description="published peak to relate the metric to")] = (
        None
    )


class WorkloadBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A canary program."""

    name: str
    description: str
    catches: list[str]
    command: list[str]
    gpus: int
    nodes: Annotated[int, Meta(description="number of nodes of a run")]
    timeout_s: int
    seeds: list[int]
    metrics: dict[str, MetricBody]
    checks: dict[str, str]
    adapter: str
    digest: Annotated[str, Meta(description="content digest")]


StateFilter = State | Literal["active", "ended"]


class RunFilters(ListQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of the list of runs."""

    state: (
        Annotated[StateFilter, Meta(description="state of the run; also `active` or `ended`")]
        | None
    ) = None
    target: Filter | None = None
    suite: Filter | None = None
    entry: Filter | None = None
    host: Annotated[Filter, Meta(description="host of the current or last attempt")] | None = None
    asked_by: Filter | None = None
    purpose: Purpose | None = None
    since: Since | None = None
    until: Until | None = None


class HostFilters(ListQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of the list of hosts."""

    gpu: Annotated[Filter, Meta(description="SKU")] | None = None


RUN: dict[str, Any] = {
    "suite": "hello",
    "target": "prod-a100",
    "stack": {"cuda": "12.4", "torch": "2.4.1+cu124"},
    "image": "registry.example/team/app:1.4",
    "priority": 5,
}
IMPORT: dict[str, Any] = {
    "content": (
        '{"type": "env", "host": "n1"}\n'
        '{"type": "metric", "name": "busbw-8388608", "unit": "GB/s", "value": 89.5}\n'
        '{"type": "check", "name": "finished", "ok": true}\n'
    ),
    "source": "acceptance-lab",
    "format": "jsonl",
    "sku": "A100-SXM4-80GB",
    "driver": "535.183.01",
    "stack": {"nccl": "2.21.5"},
    "measured_at": "2026-11-03T09:30:00Z",
}
