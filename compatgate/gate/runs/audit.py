"""What happens to runs, in the audit log: ``run.queued``, ``run.leased``, ..., ``run.passed``."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from compatgate.store import audit


def note(
    session: Session, at: datetime, actor: str, what: str, run_id: str, detail: dict[str, Any]
) -> None:
    """Add a link about a run; the session must be a writing one."""
    audit.append(session, at=at, actor=actor, action=f"run.{what}", subject=run_id, detail=detail)
