"""Define the audit log as REST carries it."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from compatgate.kit.http.schemas import Filter, ListQuery, Since, Until


class AuditBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A link of the audit chain."""

    seq: int
    at: Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
    actor: str
    action: str
    subject: str
    detail: dict[str, Any]
    hash: str


class ChainBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The result of a verification of the logs."""

    ok: bool
    links: int
    decisions: int
    revisions: int
    evidence: Annotated[int, Meta(description="number of judged runs")]
    head: Annotated[
        str,
        Meta(
            description="latest hash; store it elsewhere: the chain alone cannot reveal truncation"
        ),
    ]
    problems: list[str]
    batches: Annotated[int, Meta(description="number of batches of decisions")] = 0
    tokens: int = 0
    since: Annotated[
        int,
        Meta(
            description="link of the seal where the verification began; 0: everything was verified"
        ),
    ] = 0
    checked_links: Annotated[int, Meta(description="number of verified links")] = 0
    checked_decisions: Annotated[int, Meta(description="number of verified decisions")] = 0
    unanchored: Annotated[int, Meta(description="number of decisions that no link covers yet")] = 0


class AuditFilters(ListQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Filters of the audit log."""

    action: Annotated[Filter, Meta(description="action, or a prefix such as `matrix.`")] | None = (
        None
    )
    actor: Filter | None = None
    since: Since | None = None
    until: Until | None = None
