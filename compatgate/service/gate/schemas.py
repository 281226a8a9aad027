"""Define questions to the gate, verdicts, what-if answers and decisions as REST carries them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from compatgate.core.limits import (
    LONGEST_IMAGE,
    LONGEST_NAME,
    LONGEST_REQUIRE,
    MOST_ALTERNATIVES,
    MOST_ARCHITECTURES,
    MOST_KEYS,
    MOST_REMARKS,
)
from compatgate.core.matrix import Mode
from compatgate.core.verdict import Basis, FindingOutcome, Outcome
from compatgate.core.whatif_result import Cause, Change

Text = Annotated[str, Meta(min_length=1)]
StackValue = str | int | bool | list[str] | dict[str, dict[str, Any] | str] | None
_NUMBER = (
    "version as text; `arch` and `require` are lists; `disable-require` is true or false; "
    "`cuda-compat-use` is always, newer or tried; `open`, `conflicts` and `unread` are sentences; "
    "`wheels` has `file`, `sha256` and `index` by name; `measured` what the files of a part hold, "
    "as `inspect` prints it for images and folders; `unmeasured` says by release why a package "
    "has no record. GPU code may stand behind a version: "
    "`2.8.3[sm_90]`"
)
_BOUNDS = (
    f"`require` has at most {MOST_ALTERNATIVES} alternatives and {LONGEST_REQUIRE} characters in "
    f"all, `arch` {MOST_ARCHITECTURES} items, a list of sentences {MOST_REMARKS}"
)
StackBody = Annotated[
    dict[str, StackValue],
    Meta(
        min_length=1,
        max_length=MOST_KEYS,
        description=f"component or package of the index to {_NUMBER}. {_BOUNDS}",
        examples=[{"cuda": "12.4", "cudnn": "9.1.0", "arch": ["sm_80", "compute_90"]}],
    ),
]


class PoolQuestion(Struct, frozen=True, forbid_unknown_fields=True):
    """A place to run, described instead of named."""

    driver: Annotated[Text | None, Meta(description="NVIDIA driver", examples=["535.104.05"])] = (
        None
    )
    gpu: Annotated[
        Text | None,
        Meta(description="product, or compute capability", examples=["A100-SXM4-80GB", "8.7"]),
    ] = None
    os: Annotated[Text | None, Meta(description="linux, windows or wsl")] = None
    cpu: Annotated[
        Text | None,
        Meta(
            description="x86_64 (amd64) or aarch64 (arm64); else what the GPU comes with "
            "(GH200: aarch64)"
        ),
    ] = None
    name: str | None = None
    count: Annotated[int, Meta(ge=0)] | None = None


class GateRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """May this run there? `target` or `pool`, one of the two; `stack`, `image` or both."""

    target: Annotated[
        Text | None, Meta(description=f"name of a target, at most {LONGEST_NAME} characters")
    ] = None
    pools: Annotated[
        Annotated[list[Text], Meta(min_length=1)] | None,
        Meta(
            description="names of the target's pools that the question is about; else all. The "
            "verdict then says that it is not about the whole target (CG833)",
        ),
    ] = None
    pool: PoolQuestion | None = None
    stack: StackBody | None = None
    image: Annotated[
        Text | None,
        Meta(
            description="read from its registry, where the operator allows that; else a label of "
            f"the stack that is stated; at most {LONGEST_IMAGE} characters"
        ),
    ] = None
    set: (
        Annotated[
            dict[str, StackValue],
            Meta(
                max_length=MOST_KEYS,
                description="what if: component or package, or `driver gpu os cpu`, to value; null "
                "removes",
            ),
        ]
        | None
    ) = None


class ReferenceBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Something published, and its address where that is known."""

    title: str
    url: str | None


class SourceBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Where the fact that decided was published."""

    title: str
    url: str | None
    confidence: str
    also: Annotated[
        list[ReferenceBody], Meta(description="what else says it, each with its own address")
    ]


class FixBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The smallest change that was found to mend a finding; evaluated before it is offered."""

    set: dict[str, Any]
    message: str


class FindingBody(Struct, frozen=True, forbid_unknown_fields=True):
    """One rule's result on one or more pools."""

    rule: Annotated[str, Meta(pattern="^CG[0-9]{3}$")]
    name: str
    outcome: FindingOutcome
    pools: list[str]
    component: str
    have: str | None
    need: str | None
    message: str
    source: SourceBody | None
    fixes: list[FixBody]


class CheckedBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Rules that held, and rules that did not apply."""

    passed: list[str]
    not_applicable: list[str]


class PoolBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A pool as evaluated; null is what the question left open."""

    name: str
    gpu: str | None
    compute_capability: str | None
    driver: str | None
    os: Literal["linux", "windows", "wsl"]
    cpu: Literal["x86_64", "aarch64"]
    count: int


class VerdictBody(Struct, frozen=True, forbid_unknown_fields=True):
    """`verdict` is the truth, `allowed` what the policy's mode makes of it.

    The id is a digest of everything that the verdict rests on: asking again gives the same id.
    """

    id: Annotated[str, Meta(pattern="^vd_[0-9a-f]{32}$")]
    verdict: Outcome
    allowed: bool
    mode: Mode
    target: str | None
    findings: list[FindingBody]
    checked: CheckedBody
    stack: dict[str, Any]
    image: str | None
    pools: list[PoolBody]
    matrix_revision: int
    entries: Annotated[dict[str, str], Meta(description="pool to the entry that matched best")]
    facts: Annotated[str, Meta(description="digest of the vendors' facts")]
    overlays: list[str]
    evidence: list[str]
    decided_at: datetime
    valid_until: Annotated[
        str | None, Meta(description="when something that it rests on passes; null: nothing does")
    ]
    basis: Annotated[
        Basis | None,
        Meta(
            description="where the gate has the stack from: it read the image, and nothing else; "
            "the asker stated it, or a part; or `set` changed something; null: decided before "
            "this was kept"
        ),
    ] = None


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


class DecisionBody(Struct, frozen=True, forbid_unknown_fields=True):
    """An answer that the gate gave."""

    id: int
    verdict_id: str
    decided_at: datetime
    target: str | None
    outcome: Outcome
    allowed: bool
    asked_by: str
    source: str
    duration_us: int
    image: str | None
    matrix_revision: int


QUESTIONS: dict[str, Any] = {
    "pool": {
        "pool": {"driver": "535.104.05", "gpu": "A100-SXM4-80GB", "os": "linux"},
        "stack": {"cuda": "12.4", "cudnn": "9.1.0", "arch": ["sm_80", "compute_80"]},
    },
    "target": {
        "target": "prod-a100",
        "stack": {"cuda": "12.4", "cudnn": "9.1.0", "torch": "2.4.1+cu124", "arch": ["sm_80"]},
        "image": "registry.example/team/app:1.4",
    },
    "image": {
        "target": "prod-a100",
        "image": "registry.example/team/app:1.4",
        "stack": {"cuda": "12.4", "torch": "2.4.1+cu124"},
    },
    "what-if": {
        "target": "prod-a100",
        "stack": {"torch": "2.4.1+cu121", "arch": "sm_80+sm_90"},
        "set": {"driver": "550.54.15", "cudnn": "9.1.0"},
    },
}
