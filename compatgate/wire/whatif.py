"""What a change of a target would do."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from compatgate.core.target import Mode
from compatgate.core.verdict import Outcome
from compatgate.core.whatif import Cause, Change
from compatgate.wire.verdicts import FindingBody, PoolBody, StackValue, Text


class NodeQuestion(Struct, frozen=True):
    """A Kubernetes node, as far as it is looked at."""

    labels: Annotated[
        dict[str, str],
        Meta(
            min_length=1,
            description="those of GPU Feature Discovery name its GPUs and driver",
            examples=[{"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}],
        ),
    ]
    name: str | None = None


class WhatIfRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """`target` or `node`, or both."""

    set: Annotated[
        dict[str, StackValue],
        Meta(
            min_length=1,
            description="`driver gpu os cpu` change the pools, other components every stack",
            examples=[{"driver": "580.95.05"}],
        ),
    ]
    target: Annotated[Text | None, Meta(description="name of a target")] = None
    pool: Annotated[Text | None, Meta(description="only this pool of it changes")] = None
    node: NodeQuestion | None = None


class PoolWhatIfBody(Struct, frozen=True, forbid_unknown_fields=True):
    """One entry on one pool: `lost` are findings that are new, `gained` those that are gone."""

    pool: str
    stack: Annotated[dict[str, Any], Meta(description="what stood for the entry")]
    before: Outcome
    after: Outcome
    change: Change
    cause: Cause | None
    lost: list[FindingBody]
    gained: list[FindingBody]


class EntryWhatIfBody(Struct, frozen=True, forbid_unknown_fields=True):
    """What becomes of one entry of the matrix.

    `cause` says what makes it worse: the vendors' `facts`, or only that the `matrix` does not bless
    it so, or that canary `evidence` is missing.
    """

    entry: str
    status: Literal["blessed", "deprecated"]
    verdict: Outcome
    change: Change
    cause: Cause | None
    open: Annotated[list[str], Meta(description="why it cannot be evaluated")]
    pools: list[PoolWhatIfBody]


class WhatIfBody(Struct, frozen=True, forbid_unknown_fields=True):
    """`fail`: something in use breaks; `unknown`: of something it is not known.

    `host` are findings about the changed pools themselves, whatever runs there.
    """

    target: str
    set: dict[str, Any]
    verdict: Outcome
    allowed: Annotated[bool, Meta(description="what the target's policy makes of it")]
    mode: Mode
    summary: str
    host: list[FindingBody]
    entries: Annotated[list[EntryWhatIfBody], Meta(description="worst first")]
    remarks: list[str]
    before: list[PoolBody]
    after: list[PoolBody]
    matrix_revision: int
    facts: str


WHAT_IF: dict[str, Any] = {
    "driver": {"target": "prod-a100", "set": {"driver": "580.95.05"}},
    "gpu": {"target": "prod-a100", "pool": "a100-80", "set": {"gpu": "H100-SXM5-80GB"}},
    "node": {
        "target": "prod-a100",
        "node": {"labels": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}},
        "set": {"driver": "580.95.05"},
    },
}
