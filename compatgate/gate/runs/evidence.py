"""What becomes of a judged run: evidence, and what that means for the matrix."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from compatgate.core.facts import Facts
from compatgate.core.matrix import Evidence
from compatgate.gate.runs.promotion import promote
from compatgate.store import evidence as store


def keep(session: Session, run: Evidence, facts: Facts, at: datetime) -> dict[str, Any]:
    """Store evidence, and change the matrix as policies say; what the audit log is to say of it.

    Args:
        session: a writing one.
        run: that was judged.
        facts: to resolve GPUs with.
        at: now.
    """
    row = store.add(session, run, at)
    return {
        "evidence": row.seq,
        "sha256": store.fingerprint(row),
        **promote(session, run, facts, at),
    }
