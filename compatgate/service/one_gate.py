"""Construct a gate alone: for a command that asks one question, and for `app`."""

from __future__ import annotations

from typing import Any

from compatgate.core.facts import Facts
from compatgate.kit.database.database import Database
from compatgate.service.gate.questions.service import Gate
from compatgate.service.matrix.snapshots.reader import Snapshots
from compatgate.service.runs.evidence.evidence import StoredEvidence


def make_gate(database: Database, facts: Facts, kind: type[Gate] = Gate, **options: Any) -> Gate:
    """Return a gate on a database, with the options of `Gate`."""
    return kind(Snapshots(database, facts, StoredEvidence()), **options)
