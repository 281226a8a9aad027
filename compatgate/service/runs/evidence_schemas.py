"""Define judged runs as evidence, as REST carries them: bindings, pools, warnings, promotions."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct


class ComparisonBody(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The result of a run in pairs, by its worst metric; unknown values are omitted."""

    reference: Annotated[str | None, Meta(description="digest of the reference image")] = None
    entry: Annotated[str, Meta(description="entry that the reference image represents")] = ""
    pairs: Annotated[int, Meta(description="number of complete pairs")] = 0
    metrics: Annotated[int, Meta(description="compared metrics")] = 0
    metric: Annotated[str, Meta(description="worst metric, as WORKLOAD.METRIC")] = ""
    outcome: Literal["", "regression", "inconclusive", "improvement", "ok"] = ""
    effect: Annotated[
        float | None,
        Meta(description="relative change of the worst metric, candidate against reference"),
    ] = None
    low: Annotated[
        float | None, Meta(description="interval of the change: lower and upper end")
    ] = None
    high: float | None = None
    confidence: Annotated[float | None, Meta(description="confidence of the interval")] = None
    tolerance: float = 0.0
    judgement: Annotated[
        str, Meta(description="digest of the run's `pairs.judgement` as JSON with sorted keys")
    ] = ""


class BindingBody(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The content that a judged run is bound to; unknown values are omitted."""

    image: Annotated[str | None, Meta(description="digest of the image under test")] = None
    images: Annotated[list[str], Meta(description="other digests of the image under test")] = []
    content: Annotated[str | None, Meta(description="digest of the image's GPU content")] = None
    content_why: Annotated[str, Meta(description="reason why the content is unknown")] = ""
    suite: Annotated[str, Meta(description="digest of the suite's definition")] = ""
    workloads: Annotated[dict[str, str], Meta(description="digest of each workload")] = {}
    arch: Annotated[str, Meta(description="architecture of the GPUs, for example sm_80")] = ""
    gpus: Annotated[list[str], Meta(description="UUIDs of the GPUs")] = []
    mig: Annotated[list[str], Meta(description="MIG profiles")] = []
    host: str = ""
    executor: str = ""
    judge: Annotated[str, Meta(description="version of the judge")] = ""
    assurance: Annotated[
        Literal["", "self-reported", "challenged", "witnessed"],
        Meta(description="weakest assurance of the run's steps on GPUs; empty: unknown"),
    ] = ""
    compared: Annotated[
        ComparisonBody | None, Meta(description="omitted if the candidate was judged alone")
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
    development: Annotated[bool, Meta(description="true: the run was outside a container")]
    known_at: datetime
    content: Annotated[str | None, Meta(description="digest of the GPU content; null: unknown")]
    bound: Annotated[
        BindingBody | None, Meta(description="null: judged before bindings were recorded")
    ]


class DiscardBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The person who discarded a run, with time and reason."""

    by: str
    reason: str
    at: datetime


class PooledRunBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A judged run in a pool."""

    run: str
    outcome: Literal["passed", "failed", "inconclusive"]
    finished: Annotated[int, Meta(description="seconds since the epoch")]
    discarded: Annotated[DiscardBody | None, Meta(description="null: the run counts")]


class RunPoolBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The judged runs of one suite, GPU content, SKU and driver; one failure denies."""

    passed: Annotated[int, Meta(description="number of judged runs that passed")]
    judged: Annotated[int, Meta(description="number of judged runs, without discarded runs")]
    runs: Annotated[
        list[PooledRunBody], Meta(description="runs, newest first, including discarded runs")
    ]


class RunEvidenceBody(EvidenceBody, frozen=True, forbid_unknown_fields=True):
    """The evidence of one run, and the runs that it is pooled with."""

    discarded: Annotated[DiscardBody | None, Meta(description="null: the run counts")]
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
    failed: Annotated[str | None, Meta(description="failed run; null: no run has passed")]


class PromotionBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The missing evidence of a candidate."""

    state: Literal["waiting", "failed", "ready"]
    automatic: Annotated[bool, Meta(description="the gate blesses the entry automatically")]
    runs: Annotated[list[str], Meta(description="passed runs")]
    needs: list[NeedBody]
    contents: Annotated[list[str], Meta(description="GPU content of the passed runs")]
