"""Nodes that GPUs are in, as they were seen."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Boolean, Index, Text
from sqlalchemy.orm import Mapped, mapped_column

from compatgate.store.models.base import Base
from compatgate.store.types import UtcTime


class Node(Base):
    """A node, as its witnesses reported it last."""

    __tablename__ = "nodes"
    __table_args__ = (Index(None, "seen_at"),)

    cluster: Mapped[str] = mapped_column(Text, primary_key=True)
    name: Mapped[str] = mapped_column(Text, primary_key=True)
    driver: Mapped[str | None] = mapped_column(Text, comment="That counts; null: not known")
    gpus: Mapped[str] = mapped_column(Text, comment="JSON: SKUs that count, each with its number")
    skus: Mapped[str] = mapped_column(Text, comment="|SKU|SKU|, for filters")
    disagrees: Mapped[bool] = mapped_column(Boolean, comment="Witnesses disagree")
    disagreements: Mapped[str] = mapped_column(Text, comment="JSON: in sentences")
    target: Mapped[str | None] = mapped_column(Text, comment="That the node's annotation names")
    labels: Mapped[str] = mapped_column(Text, comment="JSON: last reported")
    witnesses: Mapped[str] = mapped_column(Text, comment="JSON: what each says, and when")
    reported_by: Mapped[str] = mapped_column(Text, comment="Name of the token, last")
    first_seen_at: Mapped[datetime] = mapped_column(UtcTime)
    seen_at: Mapped[datetime] = mapped_column(UtcTime, comment="By any witness")
    since: Mapped[datetime] = mapped_column(UtcTime, comment="Of the present driver and GPUs")
