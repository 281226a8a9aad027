"""Define the question and the answer of the solver as REST carries them."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct, field

from compatgate.core.components import MAX_KEYS
from compatgate.core.rule import Finding, Outcome
from compatgate.core.solve import MAX_STACKS, MAX_TARGETS, MAX_WANTS
from compatgate.kit.http.schemas import StackBody, StackValue, Text
from compatgate.service.gate.questions.schemas import DegradedBody, PoolQuestion

_Wants = Annotated[
    dict[str, str],
    Meta(
        min_length=1,
        max_length=MAX_WANTS,
        description="wanted parts and their constraints; `*`: any version",
        examples=[{"torch": ">=2.6", "flash-attn": "*"}],
    ),
]
_WantTexts = Annotated[
    list[str],
    Meta(
        min_length=1,
        max_length=MAX_WANTS,
        description="the same as text, for example `torch>=2.6,flash-attn`",
        examples=[["torch>=2.6,<2.9", "flash-attn"]],
    ),
]


class SolveRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Wanted parts, and one of `target`, `targets` and `pool`."""

    want: _Wants | _WantTexts
    target: Annotated[Text | None, Meta(description="name of a target")] = None
    targets: Annotated[
        Annotated[list[Text], Meta(min_length=1, max_length=MAX_TARGETS)] | None,
        Meta(description="names of targets; a stack must pass on all of them"),
    ] = None
    pool: PoolQuestion | None = None
    stack: Annotated[
        Annotated[dict[str, StackValue], Meta(max_length=MAX_KEYS)] | None,
        Meta(
            description="properties of every stack in addition to versions: `arch`, `needs`",
            examples=[{"needs": ["bf16", "60GiB"]}],
        ),
    ] = None
    base: Annotated[
        StackBody | None,
        Meta(description="base stack; solutions change as little of it as possible"),
    ] = field(default=None, name="from")
    limit: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_STACKS)] | None,
        Meta(description="number of stacks to return; default: 5"),
    ] = None
    warnings: Annotated[
        bool | None, Meta(description="include stacks that pass with warnings; default: true")
    ] = None
    labels: Annotated[
        Annotated[list[Text], Meta(max_length=MAX_WANTS)] | None,
        Meta(
            description="labels of the builds that an index other than the package index has;"
            " default: any",
            examples=[["cu126", "cu128"]],
        ),
    ] = None


class ChangedPartBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A part that differs from `from`; null: the stack does not have it."""

    name: str
    before: str | None
    after: str | None


class StackVerdictBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The verdict on a stack on one target; `POST /gate` gives the same id."""

    id: Annotated[str, Meta(pattern="^vd_[0-9a-f]{32}$")]
    verdict: Outcome
    allowed: bool
    target: str | None
    pools: Annotated[list[str], Meta(description="names of the pools")]
    entries: dict[str, str]
    valid_until: str | None
    findings: list[Finding]


class SolvedStackBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A stack that passes on every target."""

    stack: dict[str, Any]
    changes: list[ChangedPartBody]
    build: Annotated[
        list[str], Meta(description="packages that must be built for the stated GPU code")
    ]
    valid_until: str | None
    verdicts: list[StackVerdictBody]


class MissBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A stack that was refused, with the rules that refuse it."""

    stack: dict[str, Any]
    rules: list[str]
    verdicts: list[StackVerdictBody]


class SolveBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Stacks that pass, best first; if none passes, the nearest refused stacks."""

    want: dict[str, str]
    targets: list[str]
    found: bool
    stacks: list[SolvedStackBody]
    misses: list[MissBody]
    unknown: Annotated[
        list[str], Meta(description="wanted parts without a matching release in the facts")
    ]
    evaluated: Annotated[int, Meta(ge=0, description="number of evaluations")]
    complete: Annotated[
        bool,
        Meta(
            description="false: the search stopped at its work limit, so that finding nothing"
            " decides nothing"
        ),
    ]
    matrix_revision: int
    facts: str
    degraded: DegradedBody | None = None


SOLVE_EXAMPLES: dict[str, Any] = {
    "target": {"target": "prod-a100", "want": {"torch": ">=2.6", "flash-attn": "*"}},
    "change": {
        "target": "prod-a100",
        "want": ["torch>=2.6"],
        "from": {"torch": "2.4.1+cu121", "cuda": "12.1", "python": "3.11"},
    },
    "frontier": {"targets": ["prod-a100", "inference-l4"], "want": ["vllm"]},
}
