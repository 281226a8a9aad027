"""Tokens, the decision log and the audit log."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from compatgate.core.verdict import Outcome

ScopeName = Literal["read", "gate", "operate", "bless", "admin"]
SCOPES: dict[ScopeName, str] = {
    "read": "see everything but tokens",
    "gate": "ask for verdicts",
    "operate": "submit, cancel and repeat canary runs, propose baselines, report and remove nodes",
    "bless": "change targets, entries and waivers, also by import; approve and refuse baselines",
    "admin": "list, create and revoke tokens, verify the audit log, and all of the above",
}
"""What each scope allows; none but ``admin`` includes another. Whatever decides what the gate lets
through takes ``bless``."""
_SCOPES = "; ".join(f"`{name}`: {allows}" for name, allows in SCOPES.items())


class TokenBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A token, without its secret."""

    id: str
    name: str
    scopes: list[ScopeName]
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None
    active: Annotated[bool, Meta(description="neither revoked nor expired")]


class NewTokenBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A token as it was made."""

    secret: Annotated[str, Meta(description="shown this once; only its hash is kept")]
    token: TokenBody


class TokenRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A token to be made."""

    name: Annotated[str, Meta(min_length=1, max_length=128)]
    scopes: Annotated[list[ScopeName], Meta(min_length=1, description=_SCOPES)]
    expires: Annotated[
        str | None, Meta(description="how long it is valid", examples=["90d", "12h"])
    ] = None


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


class AuditBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A link of the audit chain."""

    seq: int
    at: datetime
    actor: str
    action: str
    subject: str
    detail: dict[str, Any]
    hash: str


class ChainBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Whether the logs are as they were written."""

    ok: bool
    links: int
    decisions: int
    revisions: int
    evidence: Annotated[int, Meta(description="judged runs")]
    head: Annotated[str, Meta(description="note it elsewhere to notice a chain cut short")]
    problems: list[str]
