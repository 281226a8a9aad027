"""Define what workers send and receive over REST."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from compatgate.canary.judge.result import Samples
from compatgate.canary.run import Outcome
from compatgate.canary.workload import MetricSpec
from compatgate.core.binding import SuiteDefinition
from compatgate.kit.http.schemas import Text
from compatgate.service.matrix.documents.evidence_schemas import BindingBody
from compatgate.service.runs.queue.schemas import QuietBody, RunBody

LongText = Annotated[str, Meta(max_length=8000)]
HoldSeconds = Annotated[
    float, Meta(ge=1, le=3600, description="seconds of silence after which others take the run")
]


class HostDeclaration(Struct, frozen=True, forbid_unknown_fields=True):
    """A staging host, as its worker declares it: without endpoint and credentials."""

    worker: Annotated[str, Meta(min_length=1, max_length=200, description="name of the worker")]
    at: Annotated[
        datetime,
        Meta(tz=True, description="the worker's clock; refused if it is off by more than a lease"),
    ]
    executor: Literal["docker", "process", "slurm", "kubernetes"]
    gpu: Text | None = None
    driver: Text | None = None
    slots: Annotated[int, Meta(ge=1, le=1024)] = 1
    exclusive: Annotated[
        bool, Meta(description="true: a run that measures has the host to itself")
    ] = True
    health: Literal["local", "node", "none"] = "local"
    quiet: Annotated[list[QuietBody], Meta(max_length=64)] = []
    suites: Annotated[
        list[Text], Meta(max_length=10_000, description="suites that the worker can run")
    ] = []
    lease_s: HoldSeconds = 30.0


class HostReport(Struct, frozen=True, forbid_unknown_fields=True):
    """Whether a host answers its worker."""

    away: Annotated[LongText, Meta(description="why it does not answer; empty: it answers")] = ""


class DefinitionBody(SuiteDefinition, frozen=True, forbid_unknown_fields=True):
    """The gate's definition of a suite: its digest, and that of each workload, in order."""


class LeasedBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A run that a worker holds for a limited time."""

    run: RunBody
    slots: Annotated[list[int], Meta(description="slots of the host that the run holds")]
    attempt: Annotated[int, Meta(description="the first is 1; older attempts change nothing")]
    abandoned: Annotated[
        bool, Meta(description="true: the previous worker went silent; clean the host first")
    ]
    definition: Annotated[
        DefinitionBody | None,
        Meta(description="gate's definition; null: the run was queued by an older version"),
    ]


class LeaseBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The next run of a host."""

    lease: Annotated[LeasedBody | None, Meta(description="null: nothing can run there now")]


class RunIds(Struct, frozen=True, forbid_unknown_fields=True):
    """Ids of runs."""

    runs: Annotated[list[Text], Meta(max_length=10_000)]


class Reverification(Struct, frozen=True, forbid_unknown_fields=True):
    """A request to repeat the runs that blessed entries depend on."""

    worker: Annotated[str, Meta(min_length=1, max_length=200, description="name of the worker")]
    every_s: Annotated[
        int, Meta(ge=86400, description="seconds after which a blessed stack runs again")
    ]


class Heartbeat(Struct, frozen=True, forbid_unknown_fields=True):
    """A sign of life of a worker, with what has changed."""

    lease_s: HoldSeconds = 30.0
    state: Literal["preparing", "running", "judging"] | None = None
    doing: Annotated[LongText | None, Meta(description="current activity, for people")] = None
    progress: Annotated[float | None, Meta(description="share of completed work, 0 to 1")] = None
    left_s: Annotated[float | None, Meta(description="expected seconds until the end")] = None


class OrderBody(Struct, frozen=True, forbid_unknown_fields=True):
    """What the worker is to do."""

    order: Annotated[
        Literal["go", "cancel", "lost"], Meta(description="lost: another worker has the run")
    ]


class OutputPiece(Struct, frozen=True, forbid_unknown_fields=True):
    """A piece of a step's log."""

    step: Text
    data: Annotated[bytes, Meta(description="base64")]


class StepDocument(Struct, frozen=True, forbid_unknown_fields=True):
    """The result of one workload with one seed, or of a block of a pair."""

    result: Annotated[
        dict[str, Any], Meta(description="members of a run's step, as the worker recorded it")
    ]


class StepResultsBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The steps of a run that earlier attempts completed on this host."""

    steps: list[dict[str, Any]]


class PastBody(Struct, frozen=True, forbid_unknown_fields=True):
    """What earlier runs of the same steps showed."""

    lengths: Annotated[dict[str, float], Meta(description="seconds that a process took, by step")]
    in_time: Annotated[
        str, Meta(description="run whose step of this content ended in time on this host, or empty")
    ]


class PairsDocument(Struct, frozen=True, forbid_unknown_fields=True):
    """How the pairs of runs stand, as a worker stores and reads them."""

    pairs: list[dict[str, Any]]


class EvidenceClaim(Struct, frozen=True, forbid_unknown_fields=True):
    """What a worker measured; run, suite and time are the gate's."""

    sku: Text
    driver: Text
    components: dict[str, Text]
    development: Annotated[bool, Meta(description="true: the run was outside a container")]
    bound: BindingBody | None


class RunEnd(Struct, frozen=True, forbid_unknown_fields=True):
    """The end of a run, or of an attempt."""

    outcome: Annotated[
        Outcome | Literal["again"],
        Meta(description="again: the host failed, and the run goes back to the queue"),
    ]
    why: Annotated[LongText, Meta(description="one line for people")]
    evidence: EvidenceClaim | None = None
    pause_s: Annotated[
        float, Meta(ge=0, le=3600, description="seconds before the second attempt")
    ] = 15.0


class MeasuredBody(Samples, frozen=True, forbid_unknown_fields=True):
    """Values of a metric, by run."""


class BaselineOffer(Struct, frozen=True, forbid_unknown_fields=True):
    """Values of a sound step, to learn a baseline from."""

    run: Annotated[Text, Meta(description="RUN:STEP")]
    workload: Text
    sku: Text
    family: str
    metrics: dict[str, MetricSpec]
    found: list[MeasuredBody]


class ApprovedBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The approved baselines of a workload, by metric."""

    baselines: dict[str, MeasuredBody]


DECLARATION: dict[str, Any] = {
    "worker": "stage-1234",
    "at": "2026-11-03T09:30:00Z",
    "executor": "docker",
    "gpu": "A100-SXM4-80GB",
    "driver": "535.183.01",
    "suites": ["smoke"],
}
STEP: dict[str, Any] = {"name": "gemm-0", "workload": "gemm", "seed": 0, "outcome": "passed"}
