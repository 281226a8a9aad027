"""Define batches of decisions as a far gate delivers them over REST."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

MAX_BATCHES = 200
MAX_DECISIONS = 1000
_Hash = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
VerdictId = Annotated[str, Meta(pattern="^vd_[0-9a-f]{32}$")]
_LONGEST = 512
_Text = Annotated[str, Meta(max_length=_LONGEST)]


class DeliveredDecision(Struct, frozen=True, forbid_unknown_fields=True):
    """A decision of a far gate."""

    verdict_id: VerdictId
    decided_at: Annotated[datetime, Meta(tz=True)]
    target: Annotated[_Text | None, Meta(description="null: the question named a pool")]
    outcome: Annotated[str, Meta(pattern="^(pass|warn|unknown|fail)$")]
    allowed: bool
    matrix_revision: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    image: Annotated[str, Meta(min_length=1, max_length=_LONGEST)] | None
    asked_by: Annotated[
        _Text, Meta(description="caller and name of the far gate", examples=["ci@cluster-7"])
    ]
    source: _Text
    duration_us: Annotated[int, Meta(ge=0, le=2**31 - 1)]


class DeliveredBatch(Struct, frozen=True, forbid_unknown_fields=True):
    """A batch of the writer's hash chain."""

    sequence: Annotated[
        int, Meta(ge=1, le=2**62, description="sequence number of the writer: 1, 2, 3, ...")
    ]
    previous: Annotated[_Hash, Meta(description="hash of the previous batch; zeros: first batch")]
    hash: Annotated[_Hash, Meta(description="hash of this batch")]
    decisions: Annotated[list[DeliveredDecision], Meta(min_length=1, max_length=MAX_DECISIONS)]
    verdicts: Annotated[
        dict[VerdictId, str],
        Meta(
            max_length=MAX_DECISIONS,
            description="JSON text of verdicts that the gate may lack, by id",
        ),
    ] = {}


class DeliveryRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Batches of one writer, in order."""

    writer: Annotated[
        str,
        Meta(
            pattern="^[A-Za-z0-9][A-Za-z0-9._@-]{0,127}:[0-9a-f]{16}$",
            description="name of the token, a colon, and a random id of the process",
            examples=["cluster-7:0123456789abcdef"],
        ),
    ]
    batches: Annotated[list[DeliveredBatch], Meta(min_length=1, max_length=MAX_BATCHES)]


class DeliveryBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The state of a writer after a delivery."""

    writer: str
    sequence: Annotated[int, Meta(description="sequence number of the last batch in this request")]
    stored: Annotated[int, Meta(description="number of newly stored batches")]
    known: Annotated[int, Meta(description="number of batches that were stored before")]


def name_caller(caller: str, far_gate: str) -> str:
    """Return the name of a far gate's caller as the log of the central gate has it."""
    ending = f"@{far_gate}"
    return caller[: _LONGEST - len(ending)] + ending
