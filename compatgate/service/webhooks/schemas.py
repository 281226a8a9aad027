"""Define what deploy tools send, and the answers to them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from compatgate.core.matrix import Mode
from compatgate.core.verdict import Outcome
from compatgate.service.gate.schemas import NodeQuestion, PoolQuestion, StackBody, StackValue, Text

Patience = Annotated[
    str | None, Meta(description="how long the tool waits (10s)", examples=["30s"])
]
_AS_TEXT = "as an object, or as text: `cuda=12.4,cudnn=9.1.0`"


class DeployQuestion(Struct, frozen=True, forbid_unknown_fields=True):
    """May this be deployed there? As `POST /gate`, and what is an object may be text."""

    target: Annotated[str | None, Meta(description="name of a target")] = None
    pool: Annotated[PoolQuestion | str | None, Meta(description=_AS_TEXT)] = None
    stack: Annotated[StackBody | str | None, Meta(description=_AS_TEXT)] = None
    image: Annotated[str | None, Meta(description="reference of the image")] = None
    set: Annotated[dict[str, StackValue] | str | None, Meta(description=_AS_TEXT)] = None


class DeployAnswer(Struct, frozen=True, forbid_unknown_fields=True):
    """`decision` is what becomes of it; `reason` is why, the fix and the link in one line."""

    decision: Annotated[
        Literal["allow", "deny", "unknown", "error"],
        Meta(description="`unknown`: no decision can be had; `error`: the question is wrong"),
    ]
    allowed: bool
    reason: str
    target: str | None = None
    mode: Mode | None = None
    verdict: Outcome | None = None
    id: Annotated[str | None, Meta(description="of the verdict")] = None
    url: Annotated[str | None, Meta(description="of the verdict")] = None


class FlaggerPayload(Struct, frozen=True):
    """What Flagger sends; in `metadata` `type target pool stack image set` are ours, as text."""

    name: Text
    namespace: Text
    phase: str = ""
    checksum: str = ""
    metadata: dict[str, str] | None = None


class FlaggerQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """What Flagger does not say by itself."""

    type: Annotated[
        str | None,
        Meta(
            description="which hook it is, if `metadata.type` does not say:"
            " confirm-rollout, pre-rollout, rollout, confirm-traffic-increase,"
            " confirm-promotion, post-rollout, rollback or event",
            examples=["confirm-rollout"],
        ),
    ] = None
    timeout: Patience = None


class DeployQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """How to answer."""

    status: Annotated[
        Literal["decision", "200"],
        Meta(description="`200`: always that one, for tools that look at the body alone"),
    ] = "decision"
    timeout: Patience = None


class DeployPoll(DeployQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The question, for tools that can only read; `pool stack set` as text."""

    target: Annotated[str | None, Meta(description="name of a target")] = None
    pool: Annotated[str | None, Meta(examples=["driver=550.54.15,gpu=L4"])] = None
    stack: Annotated[str | None, Meta(examples=["cuda=12.4,torch=2.4.1+cu124"])] = None
    image: Annotated[str | None, Meta(description="reference of the image")] = None
    set: Annotated[str | None, Meta(examples=["driver=580.95.05"])] = None


class ArgoQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """How to answer."""

    timeout: Patience = None


class DriverQuestion(Struct, frozen=True, forbid_unknown_fields=True):
    """May this node, pool or target take a driver?"""

    driver: Text | None = None
    target: Text | None = None
    pool: Text | None = None
    node: NodeQuestion | None = None


class DriverQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """As the body; for a body that is a Node as Kubernetes has it."""

    driver: str | None = None
    target: str | None = None
    pool: str | None = None
    status: Literal["decision", "200"] = "decision"


class DriverAnswer(DeployAnswer, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The answer, and the entries that it rests on."""

    breaks: Annotated[list[str], Meta(description="entries in use that would break")] = []
    unknown: Annotated[list[str], Meta(description="entries of which it cannot be said")] = []


_PAYLOAD = {
    "name": "podinfo",
    "namespace": "test",
    "phase": "Progressing",
    "checksum": "85d557f47b",
    "metadata": {
        "type": "confirm-rollout",
        "target": "prod-a100",
        "stack": "cuda=12.4,torch=2.4.1+cu124",
    },
}
FLAGGER: dict[str, Any] = {"payload": _PAYLOAD}
QUESTIONS: dict[str, Any] = {
    "text": {
        "target": "prod-a100",
        "stack": "cuda=12.4,cudnn=9.1.0,torch=2.4.1+cu124",
        "image": "registry.example/team/app:1.4",
    },
    "objects": {"target": "prod-a100", "stack": {"cuda": "12.4", "torch": "2.4.1+cu124"}},
}
DRIVER: dict[str, Any] = {"target": {"target": "prod-a100", "driver": "535.216.01"}}
