"""Serve the audit log."""

from __future__ import annotations

from compatgate.kit.http.replies import Reply, page_reply
from compatgate.kit.http.route import Call, Routes
from compatgate.service.audit.events.repository import AuditLog
from compatgate.service.audit.events.schemas import AuditBody, AuditFilters

routes = Routes("audit")


@routes.pages("/audit", AuditBody, "A page of the log", query=AuditFilters)
def list_audit(call: Call[AuditFilters]) -> Reply:
    """List changes and batches of decisions, newest first."""
    return page_reply(call.use(AuditLog).list_audit(**call.query.filters()))
