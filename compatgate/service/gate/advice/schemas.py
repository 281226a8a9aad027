"""Define facts, rules, and questions about stacks that pass and errors, as REST carries them."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct, field

from compatgate.core.components import MAX_KEYS
from compatgate.core.facts.errors import Certainty
from compatgate.core.rule import Finding, FindingOutcome, Outcome
from compatgate.core.solve import MAX_STACKS, MAX_TARGETS, MAX_WANTS
from compatgate.core.triage import Here
from compatgate.kit.http.schemas import StackBody, StackValue, Text
from compatgate.service.gate.questions.schemas import DegradedBody, GateRequest, PoolQuestion

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
MAX_PASTE = 256 * 1024
"""Characters of a text at most."""


class FactTable(Struct, frozen=True, forbid_unknown_fields=True):
    """A table of facts."""

    name: str
    records: Annotated[
        dict[str, int], Meta(description="number of records in each list of the table")
    ]


class FactsBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The facts of the gate."""

    digest: Annotated[str, Meta(description="digest of all tables; every verdict names it")]
    overlays: list[str]
    tables: list[FactTable]


class FactRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """A record of a table, with every note and source."""

    part: Annotated[str, Meta(description="name of a list in the table")]
    name: str
    record: dict[str, Any]


class RuleBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A rule, and its documentation."""

    id: Annotated[str, Meta(pattern="^CG[0-9]{3}$")]
    name: str
    about_facts: Annotated[
        bool, Meta(description="true: decides only by vendor facts, not by the matrix")
    ]
    documentation: str


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


class TriageRequest(GateRequest, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An error or a log, and optionally the question of `POST /gate` about its origin."""

    text: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=MAX_PASTE,
            description="error or log; the text is neither stored nor logged",
            examples=["RuntimeError: CUDA error: no kernel image is available"],
        ),
    ]


class TriageFixBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A fix; `verified`: the gate evaluated the change `set` on the same pools."""

    message: str
    set: dict[str, Any] | None = None
    verified: bool = False


class TriageFindingBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A finding of a rule behind the cause."""

    rule: Annotated[str, Meta(pattern="^CG[0-9]{3}$")]
    outcome: FindingOutcome
    pools: list[str]
    message: str


class TriageHereBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Results of the rules behind the cause for the stack.

    `holds`: they find nothing, so look for another cause. `not-applicable`: they say nothing about
    this stack.
    """

    outcome: Here
    findings: list[TriageFindingBody]


class TriageCauseBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A cause that the text shows."""

    id: str
    rule: Annotated[str | None, Meta(description="rule that detects the cause; null: none")]
    confidence: Annotated[
        Certainty,
        Meta(
            description="certain: the text names the cause; likely: other causes print the same"
            " text"
        ),
    ]
    message: str
    next: Annotated[
        str, Meta(description="command that confirms the cause, and its expected output")
    ]
    fixes: Annotated[list[TriageFixBody], Meta(description="fixes, verified fixes first")]
    signature: Annotated[str, Meta(description="id of the signature that matched")]
    seen: Annotated[str, Meta(description="words of the text that matched")]
    here: Annotated[
        TriageHereBody | None,
        Meta(
            description="result of the rule for the stated stack; only for a question with a stack"
        ),
    ] = None


class TriageBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Causes, those that fail on the stack first; empty: nothing was recognised."""

    causes: list[TriageCauseBody]
    stated: Annotated[
        dict[str, str],
        Meta(description="versions, driver and GPU that the text states, and that were used"),
    ] = {}


TRIAGE_EXAMPLES: dict[str, Any] = {
    "text": {"text": "CUDA error: no kernel image is available for execution on the device"},
    "stack": {
        "text": "CUDA driver version is insufficient for CUDA runtime version",
        "pool": {"driver": "450.80.02", "gpu": "A100-SXM4-80GB"},
        "stack": {"cuda": "12.4"},
    },
}
