"""Evidence, warnings on entries, and baselines."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

BaselineState = Literal["proposed", "approved", "replaced", "refused"]


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


class WarningBody(Struct, frozen=True, forbid_unknown_fields=True):
    """That a run contradicts an entry; one that passes closes it."""

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
    """How far a candidate is from being blessed."""

    state: Literal["waiting", "failed", "ready"]
    automatic: Annotated[bool, Meta(description="the gate blesses it by itself")]
    runs: Annotated[list[str], Meta(description="that have passed")]
    needs: list[NeedBody]


class BaselineBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A version of what a metric is expected to be."""

    id: int
    workload: Annotated[str, Meta(description="with the digest of its content")]
    sku: str
    family: Annotated[str, Meta(description="of the stack")]
    metric: str
    unit: str
    version: int
    state: BaselineState
    learnt_from: Annotated[int, Meta(description="runs")]
    values: int
    proposed_at: datetime
    proposed_by: str
    decided_at: datetime | None
    decided_by: str | None


class NearestBody(Struct, frozen=True, forbid_unknown_fields=True):
    """What the most similar stack family is judged against; to compare with, never to judge by."""

    id: int
    family: str
    median: float
    change: Annotated[
        float | None, Meta(description="from it to this baseline's median, 0.05 is 5 % more")
    ]


class BaselineDetailBody(BaselineBody, frozen=True, forbid_unknown_fields=True):
    """A version with its distribution and the runs that it was learnt from."""

    better: Literal["lower", "higher", "either"]
    tolerance: float
    runs: Annotated[
        list[dict[str, Any]], Meta(description="with `sample`, where the values came as one")
    ]
    discarded: list[dict[str, Any]]
    distribution: dict[str, Any]
    source: Annotated[str, Meta(description="where it was imported from; empty: runs here")]
    nearest: Annotated[
        NearestBody | None, Meta(description="where none is approved for its family")
    ] = None


class LeftOutBody(Struct, frozen=True, forbid_unknown_fields=True):
    """What was not taken of files, and why."""

    what: Annotated[str, Meta(description="a file, a line of one, or a metric")]
    reason: str


class BaselineFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A file of a sample or of baselines, as text."""

    name: Annotated[str, Meta(min_length=1, max_length=512, description="for messages")]
    text: str


class BaselineFiles(Struct, frozen=True, forbid_unknown_fields=True):
    """Files to propose baselines from."""

    files: Annotated[list[BaselineFile], Meta(min_length=1, max_length=10_000)]


class BaselinesImported(Struct, frozen=True, forbid_unknown_fields=True):
    """What became of files."""

    proposed: Annotated[list[BaselineBody], Meta(description="versions that wait for approval")]
    unchanged: Annotated[
        list[LeftOutBody], Meta(description="what is here already, or comes second to what is")
    ]
    refused: Annotated[list[LeftOutBody], Meta(description="what cannot be judged by here")]
