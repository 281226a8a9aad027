"""List the links of the audit chain."""

from __future__ import annotations

from typing import Any

from compatgate.kit.database.database import Database
from compatgate.kit.database.tables import Page
from compatgate.service.audit.events import repository as audit
from compatgate.service.audit.events.schemas import AuditBody


class AuditLog:
    """The audit chain of a database, read only."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def list_audit(self, **filters: Any) -> Page[AuditBody]:
        """Return links of the chain, newest first; filters of `list_records`."""
        with self._database.reading() as session:
            return audit.list_records(session, **filters)
