"""Verify the audit chain and the rows that it covers."""

from __future__ import annotations

from contextlib import suppress

from compatgate.errors import CompatgateError
from compatgate.kit.database.database import Database
from compatgate.service.audit.events.schemas import ChainBody
from compatgate.service.gate.decisions.anchors import append_anchor
from compatgate.service.recovery.chain.verification import append_seal, verify_chain


class AuditChain:
    """The audit chain of a database, and what it vouches for."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def verify(self, *, expected_head: str | None = None, full: bool = True) -> ChainBody:
        """Verify the chain and the rows that it covers, and seal what is in order."""
        with suppress(CompatgateError), self._database.writing() as session:
            append_anchor(session, {})  # so that the head covers what was decided until now
        with self._database.reading() as session:
            verified = verify_chain(session, expected_head=expected_head, full=full)
        if verified.state is not None:
            with suppress(CompatgateError), self._database.writing() as session:
                append_seal(session, verified)  # without it, the next one reads more
        return verified.report
