"""Define questions, verdicts, what-if answers, decisions, facts and rules as REST carries them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from compatgate.core.components import MAX_IMAGE_LENGTH, MAX_KEYS, MAX_NAME_LENGTH
from compatgate.core.node import NODE_COMPONENTS, Sharing
from compatgate.core.request import Mode
from compatgate.core.rule import Basis, Checked, Finding, Outcome
from compatgate.kit.http.schemas import StackBody, StackValue, Text
from compatgate.service.audit.schemas import SignatureBody
from compatgate.service.matrix.snapshots.snapshot import Envelope


class PoolQuestion(Struct, frozen=True, forbid_unknown_fields=True):
    """A pool that the question describes."""

    driver: Annotated[Text | None, Meta(description="NVIDIA driver", examples=["535.104.05"])] = (
        None
    )
    gpu: Annotated[
        Text | None,
        Meta(description="GPU product or compute capability", examples=["A100-SXM4-80GB", "8.7"]),
    ] = None
    os: Annotated[Text | None, Meta(description="operating system: linux, windows or wsl")] = None
    cpu: Annotated[
        Text | None,
        Meta(
            description="x86_64 (amd64) or aarch64 (arm64); default: the CPU of the GPU's system "
            "(GH200: aarch64)"
        ),
    ] = None
    name: str | None = None
    count: Annotated[int, Meta(ge=0)] | None = None
    platform: Annotated[
        Text | None,
        Meta(
            description="platform, for example `aws/p5`", examples=["bare-metal", "aws/p6e-gb200"]
        ),
    ] = None
    sharing: Annotated[Sharing | None, Meta(description="how containers share a GPU")] = None
    node: Annotated[
        dict[str, str] | None,
        Meta(
            description=f"parts and settings of the nodes: {', '.join(NODE_COMPONENTS)}",
            examples=[{"kernel-modules": "open", "fabric-manager": "580.95.05"}],
        ),
    ] = None


class GateRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A question: either `target` or `pool`, and `stack`, `image` or both."""

    target: Annotated[
        Text | None, Meta(description=f"name of a target, at most {MAX_NAME_LENGTH} characters")
    ] = None
    pools: Annotated[
        Annotated[list[Text], Meta(min_length=1)] | None,
        Meta(
            description="names of the target's pools to check; default: all. The verdict then says "
            "that it does not cover the whole target (CG833)"
        ),
    ] = None
    pool: PoolQuestion | None = None
    stack: StackBody | None = None
    image: Annotated[
        Text | None,
        Meta(
            description="read from its registry if the operator allows the registry; otherwise a "
            f"label of the stated stack; at most {MAX_IMAGE_LENGTH} characters"
        ),
    ] = None
    command: Annotated[
        list[str] | None,
        Meta(
            description="what runs in the image in place of its own command: of several "
            "installations in the image, the one whose interpreter it names is judged, else the "
            "worst counts; empty: not known"
        ),
    ] = None
    mounts: Annotated[
        list[str] | None,
        Meta(
            description="places of volumes in the container: where one covers what the image's "
            "stack was read from, this stack is not known"
        ),
    ] = None
    set: (
        Annotated[
            dict[str, StackValue],
            Meta(
                max_length=MAX_KEYS,
                description="what-if changes: component or package, or `driver gpu os cpu`, to "
                "value; null removes the component",
            ),
        ]
        | None
    ) = None


class PoolBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A pool as evaluated; null: the question did not state the value."""

    name: str
    gpu: str | None
    compute_capability: str | None
    driver: str | None
    os: Literal["linux", "windows", "wsl"]
    cpu: Literal["x86_64", "aarch64"]
    count: int
    platform: str | UnsetType = UNSET
    sharing: Sharing | UnsetType = UNSET
    node: dict[str, str] | UnsetType = UNSET


class DegradedBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The state of a gate without its database, or of a far gate without its central gate."""

    since: Annotated[datetime, Meta(description="when the outage began")]
    snapshot_age_s: Annotated[
        float, Meta(ge=0, description="seconds since the database last confirmed the snapshot")
    ]
    reason: Annotated[str, Meta(description="reason why the database is unavailable")]


DEGRADED = Meta(
    description="only while the gate decides on its last good snapshot; no part of the verdict"
)


class VerdictBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A verdict: `verdict` is the outcome, `allowed` the decision of the policy.

    The id is a digest of the verdict's basis: the same question gives the same id.
    """

    id: Annotated[str, Meta(pattern="^vd_[0-9a-f]{32}$")]
    verdict: Outcome
    allowed: bool
    mode: Mode
    target: str | None
    findings: list[Finding]
    checked: Checked
    stack: dict[str, Any]
    image: str | None
    pools: list[PoolBody]
    matrix_revision: int
    entries: Annotated[dict[str, str], Meta(description="best matching entry of each pool")]
    facts: Annotated[str, Meta(description="digest of the vendors' facts")]
    overlays: list[str]
    evidence: list[str]
    decided_at: datetime
    valid_until: Annotated[
        str | None, Meta(description="time when part of the basis expires; null: never")
    ]
    basis: Annotated[
        Basis | None,
        Meta(
            description="origin of the stack. `image`: the gate read the whole stack from the "
            "image; `stated`: the client stated it, or a part; `what-if`: `set` changed it; "
            "null: the decision is older than this field"
        ),
    ] = None
    degraded: Annotated[DegradedBody | None, DEGRADED] = None


class DecisionBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A decision of the gate."""

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


QUESTION_EXAMPLES: dict[str, Any] = {
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


class BundleBody(Envelope, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A signed bundle: a DSSE envelope with the digest of its payload."""

    payload_type: Literal["application/vnd.compatgate.bundle+json"]
    signatures: Annotated[Sequence[SignatureBody], Meta(min_length=1)]
