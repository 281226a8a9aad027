"""The tables."""

from compatgate.store.models.base import Base
from compatgate.store.models.evidence import Baseline, EntryWarning, EvidenceRecord
from compatgate.store.models.gate import Decision, Verdict
from compatgate.store.models.matrix import Entry, Pool, Target, TargetUse, Waiver
from compatgate.store.models.nodes import Node
from compatgate.store.models.revisions import Change, Revision
from compatgate.store.models.runs import Host, Run, RunOutput, RunStep, Slot
from compatgate.store.models.sessions import BrowserSession
from compatgate.store.models.trust import AuditRecord, Token

__all__ = [
    "AuditRecord",
    "Base",
    "Baseline",
    "BrowserSession",
    "Change",
    "Decision",
    "Entry",
    "EntryWarning",
    "EvidenceRecord",
    "Host",
    "Node",
    "Pool",
    "Revision",
    "Run",
    "RunOutput",
    "RunStep",
    "Slot",
    "Target",
    "TargetUse",
    "Token",
    "Verdict",
    "Waiver",
]
