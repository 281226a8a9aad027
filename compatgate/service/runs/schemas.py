"""Define runs, staging hosts, suites, workloads and evidence as REST carries them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from compatgate.canary.imports import ImportFormat
from compatgate.canary.run import ImportTrust, Purpose, State
from compatgate.core.facts.nvidia import PeakKind
from compatgate.service.gate.schemas import StackBody, Text

StateFilter = State | Literal["active", "ended"]


class RunRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A request for runs: a suite for a target, with a stack or image."""

    suite: Text
    target: Annotated[
        Text | None, Meta(description="one run for each SKU and driver of its pools")
    ] = None
    pool: Annotated[Text | None, Meta(description="only this pool of the target")] = None
    stack: StackBody | None = None
    image: Annotated[
        Text | None, Meta(description="image under test; the workloads' own if left out")
    ] = None
    entry: Annotated[Text | None, Meta(description="entry that the runs are about")] = None
    host: Annotated[Text | None, Meta(description="staging host to run on; any that fits")] = None
    priority: Annotated[int, Meta(ge=-1000, le=1000, description="higher runs first")] = 0
    against: Annotated[
        Text | None,
        Meta(
            description="entry or image to compare with in pairs; `auto`: the blessed entry that "
            "the image would replace; `none`: judge it alone. Left out: `auto` for an image on a "
            "target"
        ),
    ] = None


class AgainstBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The reference of a run."""

    asked: Annotated[str, Meta(description="auto, an entry or an image")]
    image: Annotated[str | None, Meta(description="null: none was found; judged alone")]
    entry: Annotated[str | None, Meta(description="entry that the image stands for")]
    reason: Annotated[str, Meta(description="where the image is known from, or why there is none")]


SOURCE_PATTERN = r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?$(?!\n)"


class ImportRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A report of another tool."""

    content: Annotated[str, Meta(description="the whole report")]
    source: Annotated[
        str, Meta(pattern=SOURCE_PATTERN, description="who measured, like `acceptance-lab`")
    ]
    format: ImportFormat | Literal["auto"] = "auto"
    file: Annotated[Text, Meta(description="name of the report, for people")] = "report"
    target: Text | None = None
    pool: Annotated[Text | None, Meta(description="of the target")] = None
    sku: Annotated[Text | None, Meta(description="GPU, where the report names no product")] = None
    driver: Annotated[Text | None, Meta(description="where the report does not name it")] = None
    host: Annotated[Text | None, Meta(description="where the report does not name it")] = None
    stack: Annotated[StackBody | None, Meta(description="components that were measured with")] = (
        None
    )
    measured_at: Annotated[
        Annotated[datetime, Meta(tz=True)] | None, Meta(description="where the report has no time")
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
    gpu: Annotated[str | None, Meta(description="SKU that its host must have; null: none")]
    driver: Annotated[str | None, Meta(description="that its host should have")]
    gpus: Annotated[int, Meta(description="slots that it takes")]
    nodes: Annotated[int, Meta(description="at once; more than one only on a cluster")]
    host: Annotated[str | None, Meta(description="that it must run on; null: any that fits")]
    priority: int
    purpose: Purpose
    attempts: int
    max_attempts: int
    doing: str
    progress: Annotated[float | None, Meta(description="0 to 1")]
    reason: Annotated[str, Meta(description="reason of the state")]
    asked_by: str
    worker: str | None
    on_host: Annotated[str | None, Meta(description="host of the current or last attempt")]
    not_before: Annotated[datetime | None, Meta(description="pause before the next attempt")]
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    cancelling: Annotated[bool, Meta(description="cancellation was requested and is pending")]
    against: Annotated[
        AgainstBody | None, Meta(description="reference; null: the candidate is judged alone")
    ] = None
    source: Annotated[
        str | None, Meta(description="format and source of an imported run; null: not imported")
    ] = None


class PeakShare(Struct, frozen=True):
    """A metric with the GPU vendor's published peak; it is not used for judging."""

    metric: str
    unit: str
    median: Annotated[float, Meta(description="of the values, in `unit`")]
    kind: PeakKind
    gpu: Annotated[str, Meta(description="whose peak it is")]
    peak: Annotated[float, Meta(description="in `unit`")]
    share: Annotated[float, Meta(description="of the peak, 0.62 for 62 %")]
    implausible: Annotated[bool, Meta(description="true: the median exceeds the published peak")]
    source: Annotated[dict[str, Any], Meta(description="of the peak")]
    words: str


class OriginBody(Struct, frozen=True):
    """The origin of a step's values."""

    digest: Annotated[str, Meta(description="of the workload's content as it was run")]
    sku: Annotated[str, Meta(description="of the host; cpu where it has no GPUs")]
    executor: str
    development: Annotated[bool, Meta(description="it ran outside a container")]


class AttributionBody(Struct, frozen=True):
    """The source of an imported result, which no worker of this gate measured."""

    format: str
    source: Annotated[str, Meta(description="who measured")]
    tool: str
    file: str
    sha256: Annotated[str, Meta(description="of the report")]
    by: Annotated[str, Meta(description="who imported it")]
    measured_at: datetime
    imported_at: datetime
    trust: Annotated[
        ImportTrust, Meta(description="who named driver and GPU: the report, or the importer")
    ]
    stated: Annotated[list[str], Meta(description="facts that the report does not contain")]


class StepBody(Struct, frozen=True):
    """The result of one workload with one seed."""

    name: str
    workload: str
    seed: int
    outcome: str
    reason: str
    exit_code: int | None
    image: Annotated[str | None, Meta(description="that ran, by digest")]
    report: Annotated[dict[str, Any] | None, Meta(description="what it printed")]
    judgement: dict[str, Any] | None
    health: Annotated[dict[str, Any] | None, Meta(description="of the host around it")]
    started_at: datetime | None
    finished_at: datetime | None
    attempt: int
    host: str
    pruned_at: Annotated[
        datetime | None, Meta(description="when report, judgement and health were removed")
    ] = None
    peaks: Annotated[
        list[PeakShare], Meta(description="metrics as shares of the GPU's published peaks")
    ] = []
    origin: Annotated[
        OriginBody | None, Meta(description="null where it was recorded before this was kept")
    ] = None
    imported: Annotated[
        AttributionBody | None, Meta(description="source; null: a worker measured it")
    ] = None


class BlockPositionBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The position of a block: A is the reference, B the candidate."""

    arm: Literal["A", "B"]
    pair: int
    session: Annotated[int, Meta(description="attempt in which it ran")]


class BlockBody(Struct, frozen=True):
    """A process of candidate or reference."""

    name: Annotated[str, Meta(description="also of its log")]
    workload: str
    seed: int
    outcome: str
    reason: str
    exit_code: int | None
    image: Annotated[str | None, Meta(description="that ran, by digest")]
    block: BlockPositionBody
    started_at: datetime | None
    finished_at: datetime | None
    attempt: int
    host: str


class PairMediansBody(Struct, frozen=True):
    """The medians of one pair's samples."""

    pair: int
    reference: float
    candidate: float


class MetricPairsBody(Struct, frozen=True):
    """The complete pairs of a metric."""

    workload: Annotated[str, Meta(description="name and digest of its content")]
    unit: str
    medians: list[PairMediansBody]
    ratios: Annotated[list[float], Meta(description="logarithms of candidate over reference")]
    share: float
    step: float


class PairsBody(Struct, frozen=True):
    """The pairs of a run so far."""

    outcome: Annotated[
        Literal["passed", "failed", "inconclusive"] | None, Meta(description="null: undecided")
    ]
    reason: str
    done: Annotated[int, Meta(description="complete pairs")]
    planned: Annotated[int, Meta(description="pairs after which the judge looks again")]
    images: Annotated[dict[str, str], Meta(description="of each arm, by digest; A: reference")]
    judgement: Annotated[
        dict[str, Any] | None,
        Meta(description="of the suite; `metrics` have effect, low, high, confidence, outcome"),
    ]
    metrics: Annotated[dict[str, MetricPairsBody], Meta(description="by WORKLOAD.METRIC")]
    single: Annotated[
        list[str], Meta(description="workloads in an image of their own, not compared")
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

    name: Annotated[str, Meta(description="of the file, in `samples/` of the workload's folder")]
    workload: str
    step: str
    text: Annotated[str, Meta(description="JSON lines")]


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
    busy: Annotated[int, Meta(description="slots that runs have now")]
    health: str
    quiet: list[QuietBody]
    registered_at: datetime
    seen_at: datetime


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
    nodes: Annotated[int, Meta(description="at once; more than one only on a cluster")]


class MetricBody(Struct, frozen=True):
    """A number that a workload measures."""

    unit: str
    better: Literal["lower", "higher", "either"]
    tolerance: float
    repetitions: int
    description: str
    peak: Annotated[
        PeakKind | None, Meta(description="published peak that it is shown as a share of")
    ] = None


class KeptBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A sample file of a workload."""

    file: str
    sku: str
    family: Annotated[str, Meta(description="of the stack")]
    driver: str | None
    versions: dict[str, str]
    measured_at: Annotated[str, Meta(description="UTC")]
    seed: int
    development: Annotated[bool, Meta(description="it ran outside a container")]
    current: Annotated[bool, Meta(description="it is of the workload as it is now")]
    note: str


class WorkloadBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A canary program."""

    name: str
    description: str
    catches: list[str]
    command: list[str]
    gpus: int
    nodes: Annotated[int, Meta(description="that it runs on at once")]
    timeout_s: int
    seeds: list[int]
    metrics: dict[str, MetricBody]
    checks: dict[str, str]
    adapter: str
    digest: Annotated[str, Meta(description="of its content")]
    samples: Annotated[list[KeptBody], Meta(description="what it has measured, newest first")]


class ComparisonBody(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a run in pairs found, by its worst metric; what is not known is left out."""

    reference: Annotated[str | None, Meta(description="digest of the reference image")] = None
    entry: Annotated[str, Meta(description="that the reference stands for")] = ""
    pairs: Annotated[int, Meta(description="complete ones")] = 0
    metrics: Annotated[int, Meta(description="that were compared")] = 0
    metric: Annotated[str, Meta(description="the worst, as WORKLOAD.METRIC")] = ""
    outcome: Literal["", "regression", "inconclusive", "improvement", "ok"] = ""
    effect: Annotated[
        float | None, Meta(description="its relative change, candidate over reference")
    ] = None
    low: Annotated[float | None, Meta(description="interval of the change")] = None
    high: float | None = None
    confidence: Annotated[float | None, Meta(description="of the interval")] = None
    tolerance: float = 0.0
    judgement: Annotated[
        str, Meta(description="digest of `pairs.judgement` of the run: JSON, keys sorted")
    ] = ""


class BindingBody(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a judged run was bound to; what is not known is left out."""

    image: Annotated[str | None, Meta(description="digest of the image under test")] = None
    images: Annotated[list[str], Meta(description="other digests of that image")] = []
    content: Annotated[str | None, Meta(description="digest of its GPU content")] = None
    content_why: Annotated[str, Meta(description="why the content is unknown")] = ""
    suite: Annotated[str, Meta(description="digest of the suite's definition")] = ""
    workloads: Annotated[dict[str, str], Meta(description="to their digest")] = {}
    arch: Annotated[str, Meta(description="of the GPUs, like sm_80")] = ""
    gpus: Annotated[list[str], Meta(description="UUIDs of the GPUs")] = []
    mig: Annotated[list[str], Meta(description="MIG profiles")] = []
    host: str = ""
    executor: str = ""
    judge: Annotated[str, Meta(description="version of the judge")] = ""
    assurance: Annotated[
        Literal["", "self-reported", "challenged", "witnessed"],
        Meta(description="weakest of its steps on GPUs; empty: unknown"),
    ] = ""
    compared: Annotated[
        ComparisonBody | None, Meta(description="left out: the candidate was judged alone")
    ] = None


class EvidenceBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A judged run, bound to what was measured inside the container."""

    seq: int
    run: str
    suite: str
    sku: str
    driver: str
    components: dict[str, str]
    outcome: Literal["passed", "failed", "inconclusive"]
    finished: Annotated[int, Meta(description="seconds since the epoch")]
    development: Annotated[bool, Meta(description="it ran outside a container")]
    known_at: datetime
    content: Annotated[str | None, Meta(description="digest of its GPU content; null: unknown")]
    bound: Annotated[BindingBody | None, Meta(description="null: judged before this was recorded")]


class DiscardBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Who discarded a run, when and why."""

    by: str
    reason: str
    at: datetime


class PooledRunBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A judged run in a pool."""

    run: str
    outcome: Literal["passed", "failed", "inconclusive"]
    finished: Annotated[int, Meta(description="seconds since the epoch")]
    discarded: Annotated[DiscardBody | None, Meta(description="null: it counts")]


class RunPoolBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The judged runs of one suite, GPU content, SKU and driver; one failure denies."""

    passed: Annotated[int, Meta(description="of the judged runs")]
    judged: Annotated[int, Meta(description="without discarded runs")]
    runs: Annotated[list[PooledRunBody], Meta(description="newest first, discarded ones too")]


class RunEvidenceBody(EvidenceBody, frozen=True, forbid_unknown_fields=True):
    """The evidence of one run, and the runs that it is pooled with."""

    discarded: Annotated[DiscardBody | None, Meta(description="null: it counts")]
    pool: RunPoolBody


class WarningBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A warning that a run contradicts an entry, until the failure no longer counts."""

    id: int
    entry: str
    run: str
    suite: str
    sku: str
    driver: str
    message: str
    opened_at: datetime
    closed_at: datetime | None
    closed_by: str | None


class NeedBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A run that a candidate lacks, or that failed."""

    target: str
    sku: str
    driver: str
    suite: str
    failed: Annotated[str | None, Meta(description="run that failed; null: none has passed")]


class PromotionBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The missing evidence of a candidate."""

    state: Literal["waiting", "failed", "ready"]
    automatic: Annotated[bool, Meta(description="the gate blesses the entry automatically")]
    runs: Annotated[list[str], Meta(description="that have passed")]
    needs: list[NeedBody]
    contents: Annotated[list[str], Meta(description="GPU contents of these runs")]


RUN: dict[str, Any] = {
    "suite": "hello",
    "target": "prod-a100",
    "stack": {"cuda": "12.4", "torch": "2.4.1+cu124"},
    "image": "registry.example/team/app:1.4",
    "priority": 5,
}
IMPORT: dict[str, Any] = {
    "content": '{"node": "n1", "nccl-bw/return_code": 0, "nccl-bw/allreduce_8388608_busbw": 89.5}',
    "source": "acceptance-lab",
    "format": "superbench",
    "sku": "A100-SXM4-80GB",
    "driver": "535.183.01",
    "stack": {"nccl": "2.21.5"},
    "measured_at": "2026-11-03T09:30:00Z",
}


class PointBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A metric in one run."""

    run: str
    state: str
    at: datetime
    host: str
    value: Annotated[float, Meta(description="median of the run's values")]
    parts: Annotated[
        dict[str, str], Meta(description="version of each component, driver, image, host, workload")
    ]


class PartChangeBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A part that differs between the last run before a change and the first after it."""

    part: str
    before: str
    after: str


class MetricChangeBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A change of a metric's level."""

    run: Annotated[str, Meta(description="the first run after the change")]
    at: datetime
    before: Annotated[float, Meta(description="median before, in the metric's unit")]
    after: float
    change: Annotated[float, Meta(description="0.05 is 5 % more")]
    runs_before: int
    runs_after: int
    chance: Annotated[float, Meta(description="of such a change in a history without one")]
    worse: bool
    beyond: Annotated[bool, Meta(description="further than the metric's tolerance")]
    stands: Annotated[bool, Meta(description="no later change brought the metric back")]
    parts: Annotated[
        list[PartChangeBody], Meta(description="what changed with it, and may be its cause")
    ]


class MetricHistoryBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A metric of a step on a GPU over runs, oldest first, across stacks and drivers."""

    workload: str
    step: str
    gpu: Annotated[str, Meta(description="SKU; empty: the runs asked for none")]
    metric: str
    unit: str
    better: Literal["lower", "higher", "either"]
    tolerance: float
    points: list[PointBody]
    changes: list[MetricChangeBody]
