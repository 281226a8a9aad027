"""Define the requests of deploy tools, and the answers to them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, defstruct

from compatgate.core.request import Mode
from compatgate.core.rule import Outcome
from compatgate.kit.http.schemas import StackBody, StackValue, Text
from compatgate.service.changes.comparison.schemas import NodeQuestion
from compatgate.service.gate.questions.schemas import DegradedBody, PoolQuestion

Patience = Annotated[str | None, Meta(description="timeout of the tool (10s)", examples=["30s"])]
_AS_TEXT = "as an object, or as text: `cuda=12.4,cudnn=9.1.0`"


class DeployQuestion(Struct, frozen=True, forbid_unknown_fields=True):
    """A deploy question: as `POST /gate`, with objects optionally as text."""

    target: Annotated[str | None, Meta(description="name of a target")] = None
    pool: Annotated[PoolQuestion | str | None, Meta(description=_AS_TEXT)] = None
    stack: Annotated[StackBody | str | None, Meta(description=_AS_TEXT)] = None
    image: Annotated[str | None, Meta(description="image reference")] = None
    set: Annotated[dict[str, StackValue] | str | None, Meta(description=_AS_TEXT)] = None


class DeployAnswer(Struct, frozen=True, forbid_unknown_fields=True):
    """`decision` is the result; `reason` has cause, fix and link in one line."""

    decision: Annotated[
        Literal["allow", "deny", "unknown", "error"],
        Meta(description="`unknown`: no decision is possible; `error`: the question is wrong"),
    ]
    allowed: bool
    reason: str
    target: str | None = None
    mode: Mode | None = None
    verdict: Outcome | None = None
    id: Annotated[str | None, Meta(description="id of the verdict")] = None
    url: Annotated[str | None, Meta(description="URL of the verdict")] = None
    degraded: Annotated[
        DegradedBody | None, Meta(description="only if the gate decided on its last good snapshot")
    ] = None


class FlaggerPayload(Struct, frozen=True):
    """A payload of Flagger; compatgate reads `type target pool stack image set` of `metadata`."""

    name: Text
    namespace: Text
    phase: str = ""
    checksum: str = ""
    metadata: dict[str, str] | None = None


class FlaggerQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Query parameters of a Flagger webhook."""

    type: Annotated[
        str | None,
        Meta(
            description="type of the hook, if `metadata.type` is missing:"
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
        Meta(description="`200`: always 200, for tools that read only the body"),
    ] = "decision"
    timeout: Patience = None


_POLLED = {
    "target": Meta(description="name of a target"),
    "pool": Meta(examples=["driver=550.54.15,gpu=L4"]),
    "stack": Meta(examples=["cuda=12.4,torch=2.4.1+cu124"]),
    "image": Meta(description="image reference"),
    "set": Meta(examples=["driver=580.95.05"]),
}
DeployPoll: Any = defstruct(
    "DeployPoll",
    [(name, Annotated[str | None, about], None) for name, about in _POLLED.items()],
    bases=(DeployQuery,),
    frozen=True,
    forbid_unknown_fields=True,
    kw_only=True,
)
"""The question as a query, for tools that can only read; objects are text."""


class ArgoQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """How to answer."""

    timeout: Patience = None


class DriverQuestion(Struct, frozen=True, forbid_unknown_fields=True):
    """A question whether a node, pool or target may get a driver."""

    driver: Text | None = None
    target: Text | None = None
    pool: Text | None = None
    node: NodeQuestion | None = None


class DriverQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The question as a query, for a body that is a Kubernetes Node."""

    driver: str | None = None
    target: str | None = None
    pool: str | None = None
    status: Literal["decision", "200"] = "decision"


class DriverAnswer(DeployAnswer, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The answer, and the entries that decide it."""

    breaks: Annotated[list[str], Meta(description="entries in use that would break")] = []
    unknown: Annotated[list[str], Meta(description="entries with an unknown result")] = []


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
