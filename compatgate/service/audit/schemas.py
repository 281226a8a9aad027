"""Define the audit log as REST carries it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct


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
