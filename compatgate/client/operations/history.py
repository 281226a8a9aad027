"""The decision log and the audit log."""

from __future__ import annotations

from msgspec import structs

from compatgate.client.operation import Listing, Operation
from compatgate.client.request import LONG_S, Moment, Request, get, pages
from compatgate.core.verdict import Outcome
from compatgate.wire.matrix import Page
from compatgate.wire.trust import AuditBody, ChainBody, DecisionBody


@Listing
def list_decisions(
    *,
    target: str | None = None,
    verdict: Outcome | None = None,
    verdict_id: str | None = None,
    allowed: bool | None = None,
    asked_by: str | None = None,
    source: str | None = None,
    image: str | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
) -> Request[Page[DecisionBody]]:
    """List what the gate decided, newest first.

    Args:
        target: that was asked about.
        verdict: what it was.
        verdict_id: its id.
        allowed: what the policy's mode made of it.
        asked_by: name of the token.
        source: how it was asked, such as ``rest``.
        image: reference, exactly.
        since: decided at or after.
        until: decided at or before.
    """
    return pages(
        "/decisions",
        DecisionBody,
        target=target,
        verdict=verdict,
        verdict_id=verdict_id,
        allowed=allowed,
        asked_by=asked_by,
        source=source,
        image=image,
        since=since,
        until=until,
    )


@Operation
def show_decision(id: int) -> Request[DecisionBody]:  # noqa: A002 - the path's name
    """Show a decision; `verdict_id` leads to the verdict."""
    return get("/decisions/{id}", DecisionBody, id=id)


@Listing
def list_audit(
    *,
    action: str | None = None,
    actor: str | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
) -> Request[Page[AuditBody]]:
    """List changes and batches of decisions, newest first.

    Args:
        action: or the beginning of several, ``matrix.``.
        actor: who acted.
        since: at or after.
        until: at or before.
    """
    return pages("/audit", AuditBody, action=action, actor=actor, since=since, until=until)


@Operation
def verify_audit(*, head: str | None = None) -> Request[ChainBody]:
    """Recompute the hash chain; a head noted earlier must still be in it."""
    return structs.replace(get("/audit/verify", ChainBody, head=head), patience=LONG_S)
