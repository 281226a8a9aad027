"""Serve the audit log, and the verification of its chain."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from compatgate.kit.http.replies import Reply, page_reply
from compatgate.kit.http.route import Call, Returns, Routes
from compatgate.kit.http.schemas import Filter
from compatgate.service.audit.chain import AuditLog
from compatgate.service.audit.schemas import AuditBody, AuditFilters, ChainBody
from compatgate.service.recovery.verification import AuditChain

routes = Routes("audit")


@routes.pages("/audit", AuditBody, "A page of the log", query=AuditFilters)
def list_audit(call: Call[AuditFilters]) -> Reply:
    """List changes and batches of decisions, newest first."""
    return page_reply(call.use(AuditLog).list_audit(**call.query.filters()))


class ChainQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Query parameters of a verification."""

    head: (
        Annotated[
            Filter, Meta(description="a hash stored earlier; it reveals truncation of the chain")
        ]
        | None
    ) = None
    full: Annotated[
        bool, Meta(description="verify everything, not only records since the last seal")
    ] = False


@routes.get(
    "/audit/verify",
    Returns(ChainBody, "The result of the verification", etag=True),
    scope="admin",
    query=ChainQuery,
    slow=True,
)
def verify_audit(call: Call[ChainQuery]) -> Reply:
    """Recompute the hash chain, and compare the logs, tokens and the matrix with it.

    The verification reads only records since the last seal. If they are intact, the audit log gets
    a new seal. `full` reads everything, which takes minutes for millions of decisions.
    """
    query = call.query
    return Reply(call.use(AuditChain).verify(expected_head=query.head, full=query.full))
