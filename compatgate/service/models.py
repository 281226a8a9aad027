"""Import the tables of every capability, for migrations and tests."""

from compatgate.kit.database.tables import Base
from compatgate.service.audit import repository as audit
from compatgate.service.baselines import repository as baselines
from compatgate.service.gate import repository as gate
from compatgate.service.matrix import models as matrix
from compatgate.service.nodes import repository as nodes
from compatgate.service.runs import evidence
from compatgate.service.runs import models as runs
from compatgate.service.tokens import repository as tokens

TABLES = (
    *(audit.AuditRecord, baselines.Baseline, evidence.EvidenceRecord, evidence.EntryWarning),
    *(gate.Verdict, gate.Decision, nodes.Node, tokens.Token, tokens.BrowserSession),
    *(matrix.Target, matrix.Pool, matrix.Entry, matrix.Waiver, matrix.TargetUse),
    *(matrix.Revision, matrix.DocumentChange),
    *(runs.Host, runs.Run, runs.Slot, runs.RunStep, runs.RunOutput),
)
"""Every table; foreign keys refer to each other across capabilities."""

METADATA = Base.metadata
