"""What runs have shown: evidence, warnings on entries, and baselines to judge by."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, Boolean, ForeignKey, Index, Integer, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from compatgate.store.models.base import Base
from compatgate.store.types import BigKey, UtcTime


class EvidenceRecord(Base):
    """A judged run, bound to what was measured. Rows are only ever added."""

    __tablename__ = "evidence"
    __table_args__ = (
        Index(None, "known_at"),
        Index(None, "suite", "sku", "seq"),
    )

    seq: Mapped[int] = mapped_column(
        BigKey, primary_key=True, autoincrement=False, comment="1, 2, 3, ... without gaps"
    )
    run: Mapped[str] = mapped_column(ForeignKey("runs.id"), unique=True)
    suite: Mapped[str] = mapped_column(Text)
    sku: Mapped[str] = mapped_column(Text)
    driver: Mapped[str] = mapped_column(Text, comment="Measured")
    components: Mapped[str] = mapped_column(Text, comment="JSON: component to version measured")
    outcome: Mapped[str] = mapped_column(Text)
    finished: Mapped[int] = mapped_column(BigInteger, comment="Seconds since the epoch")
    development: Mapped[bool] = mapped_column(Boolean, comment="Ran outside a container")
    known_at: Mapped[datetime] = mapped_column(
        UtcTime, comment="Never before that of the previous row"
    )


class EntryWarning(Base):
    """That a run contradicts a blessed entry; closed by one that passes."""

    __tablename__ = "entry_warnings"
    __table_args__ = (Index(None, "entry", "closed_at"), Index(None, "closed_at"))

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    entry: Mapped[str] = mapped_column(Text)
    run: Mapped[str] = mapped_column(ForeignKey("runs.id"), comment="That opened it")
    suite: Mapped[str] = mapped_column(Text)
    sku: Mapped[str] = mapped_column(Text)
    driver: Mapped[str] = mapped_column(Text)
    message: Mapped[str] = mapped_column(Text)
    opened_at: Mapped[datetime] = mapped_column(UtcTime)
    closed_at: Mapped[datetime | None] = mapped_column(UtcTime, comment="Null: it is open")
    closed_by: Mapped[str | None] = mapped_column(Text, comment="Id of the run that passed")


class Baseline(Base):
    """A version of what a metric is expected to be, for a workload, a SKU and a stack family."""

    __tablename__ = "baselines"
    __table_args__ = (
        UniqueConstraint("workload", "sku", "family", "metric", "version"),
        Index(None, "state", "id"),
    )

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    workload: Mapped[str] = mapped_column(Text)
    sku: Mapped[str] = mapped_column(Text)
    family: Mapped[str] = mapped_column(Text, comment="Of the stack")
    metric: Mapped[str] = mapped_column(Text)
    version: Mapped[int] = mapped_column(Integer, comment="1, 2, ... for each metric")
    state: Mapped[str] = mapped_column(Text, comment="proposed, approved, replaced or refused")
    body: Mapped[str] = mapped_column(Text, comment="The distribution, as the judge reads it")
    proposed_at: Mapped[datetime] = mapped_column(UtcTime)
    proposed_by: Mapped[str] = mapped_column(Text)
    decided_at: Mapped[datetime | None] = mapped_column(UtcTime)
    decided_by: Mapped[str | None] = mapped_column(Text)
