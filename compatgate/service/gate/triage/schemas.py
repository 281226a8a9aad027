"""Define questions about an error, and their answers, as REST carries them."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from compatgate.core.facts.errors import Certainty
from compatgate.core.rule import FindingOutcome
from compatgate.core.triage import Here
from compatgate.service.gate.questions.schemas import GateRequest

MAX_PASTE = 256 * 1024
"""Characters of a text at most."""


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


EXAMPLES: dict[str, Any] = {
    "text": {"text": "CUDA error: no kernel image is available for execution on the device"},
    "stack": {
        "text": "CUDA driver version is insufficient for CUDA runtime version",
        "pool": {"driver": "450.80.02", "gpu": "A100-SXM4-80GB"},
        "stack": {"cuda": "12.4"},
    },
}
