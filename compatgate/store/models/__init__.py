"""The tables."""

from compatgate.store.models.base import Base
from compatgate.store.models.gate import Decision, Verdict
from compatgate.store.models.matrix import Entry, Pool, Target, TargetUse, Waiver
from compatgate.store.models.revisions import Change, Revision
from compatgate.store.models.trust import AuditRecord, Token

__all__ = [
    "AuditRecord",
    "Base",
    "Change",
    "Decision",
    "Entry",
    "Pool",
    "Revision",
    "Target",
    "TargetUse",
    "Token",
    "Verdict",
    "Waiver",
]
