"""Define the tables of canary runs and staging hosts, and their rows."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy import Boolean, Float, ForeignKey, Index, Integer, LargeBinary, Text, false
from sqlalchemy.orm import Mapped, mapped_column

from compatgate.canary.run import ENDED
from compatgate.core.binding import SuiteDefinition
from compatgate.kit.database.tables import Base, BigKey, JsonText, UtcTime, to_plain
from compatgate.service.runs.queue.schemas import HostBody, RunBody


class Host(Base):
    """A staging host, as its worker last declared it."""

    __tablename__ = "hosts"

    name: Mapped[str] = mapped_column(Text, primary_key=True)
    worker: Mapped[str] = mapped_column(Text, comment="That declared it last")
    executor: Mapped[str] = mapped_column(Text, comment="docker, process, ...")
    gpu: Mapped[str | None] = mapped_column(Text, comment="SKU, resolved; null: no GPUs")
    driver: Mapped[str | None] = mapped_column(Text, comment="Null: whatever a run measures")
    slots: Mapped[int] = mapped_column(Integer, comment="GPUs; without GPUs, runs at once")
    health: Mapped[str] = mapped_column(Text, comment="Where GPU health is read: local or none")
    quiet: Mapped[list[dict[str, Any]]] = mapped_column(
        JsonText, comment="JSON: when it takes no new run"
    )
    suites: Mapped[list[str]] = mapped_column(
        JsonText, server_default="[]", comment="JSON: names of suites that its worker has"
    )
    registered_at: Mapped[datetime] = mapped_column(UtcTime)
    seen_at: Mapped[datetime] = mapped_column(UtcTime)
    away_since: Mapped[datetime | None] = mapped_column(UtcTime, comment="Null: it answers")
    away_why: Mapped[str | None] = mapped_column(Text, comment="Why, and what to do")


class Run(Base):
    """A run: one execution of a suite on one host for one stack."""

    __tablename__ = "runs"
    __table_args__ = (
        Index(None, "state", "priority", "seq"),
        Index(None, "state", "seq"),
        Index(None, "state", "lease_until"),
        Index(None, "target", "seq"),
        Index(None, "suite", "seq"),
        Index(None, "entry", "seq"),
    )

    seq: Mapped[int] = mapped_column(BigKey, primary_key=True, comment="In order of submission")
    id: Mapped[str] = mapped_column(Text, unique=True, comment="run_...")
    suite: Mapped[str] = mapped_column(Text)
    state: Mapped[str] = mapped_column(Text, comment="queued to judging, then the outcome")
    stack: Mapped[dict[str, Any]] = mapped_column(
        JsonText, comment="JSON, as in a question to the gate"
    )
    target: Mapped[str | None] = mapped_column(Text)
    pool: Mapped[str | None] = mapped_column(Text)
    entry: Mapped[str | None] = mapped_column(Text, comment="Of the matrix, that it is about")
    image: Mapped[str | None] = mapped_column(Text)
    gpu: Mapped[str | None] = mapped_column(Text, comment="SKU; null: a host without GPUs will do")
    driver: Mapped[str | None] = mapped_column(Text)
    driver_key: Mapped[str | None] = mapped_column(Text, comment="The driver, for comparing")
    gpus: Mapped[int] = mapped_column(Integer, comment="Slots that it takes")
    nodes: Mapped[int] = mapped_column(
        Integer, server_default="1", comment="At once; more than one only on a cluster"
    )
    host: Mapped[str | None] = mapped_column(Text, comment="That it must run on; null: any")
    priority: Mapped[int] = mapped_column(Integer, comment="Higher goes first")
    purpose: Mapped[str] = mapped_column(Text, comment="request or verification")
    attempts: Mapped[int] = mapped_column(Integer, comment="Begun; the fencing token")
    max_attempts: Mapped[int] = mapped_column(Integer)
    doing: Mapped[str] = mapped_column(Text)
    progress: Mapped[float | None] = mapped_column(Float, comment="0 to 1")
    reason: Mapped[str] = mapped_column(Text, comment="Why it stands as it does")
    asked_by: Mapped[str] = mapped_column(Text)
    worker: Mapped[str | None] = mapped_column(Text, comment="That has it, or had it last")
    on_host: Mapped[str | None] = mapped_column(Text, comment="Where it runs, or ran last")
    not_before: Mapped[datetime | None] = mapped_column(UtcTime, comment="Pause before a retry")
    lease_until: Mapped[datetime | None] = mapped_column(UtcTime)
    cancel_by: Mapped[str | None] = mapped_column(Text, comment="Who asked for its end")
    against: Mapped[dict[str, Any] | None] = mapped_column(
        JsonText, comment="JSON: asked, image, entry, reason; null: judged alone"
    )
    pairs: Mapped[dict[str, Any] | None] = mapped_column(
        JsonText, comment="JSON: pairs so far, and the judgement"
    )
    definition: Mapped[dict[str, Any] | None] = mapped_column(
        JsonText, comment="JSON: the gate's definition of the suite; null: queued before 0024"
    )
    explained: Mapped[str] = mapped_column(
        Text, server_default="", comment="Why improbably good values are right"
    )
    measures: Mapped[bool] = mapped_column(
        Boolean, server_default=false(), comment="It has metrics, so it takes its host alone"
    )
    left_s: Mapped[float | None] = mapped_column(
        Float, comment="Expected seconds until its end, as of the last report"
    )
    created_at: Mapped[datetime] = mapped_column(UtcTime)
    started_at: Mapped[datetime | None] = mapped_column(UtcTime, comment="Of the first attempt")
    finished_at: Mapped[datetime | None] = mapped_column(UtcTime)


class Slot(Base):
    """An occupied slot of a host; its key keeps two runs from sharing a slot."""

    __tablename__ = "slots"
    __table_args__ = (Index(None, "run"),)

    host: Mapped[str] = mapped_column(Text, primary_key=True)
    slot: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    run: Mapped[str] = mapped_column(ForeignKey("runs.id"))


class RunStep(Base):
    """The result of one workload with one seed, in one attempt."""

    __tablename__ = "run_steps"

    run: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    attempt: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    name: Mapped[str] = mapped_column(Text, primary_key=True)
    position: Mapped[int] = mapped_column(Integer, comment="In the order of recording")
    host: Mapped[str] = mapped_column(Text)
    outcome: Mapped[str] = mapped_column(Text)
    body: Mapped[str] = mapped_column(Text, comment="The step's result as JSON")


class RunOutput(Base):
    """A piece of a step's log; ``id`` grows within a run."""

    __tablename__ = "run_output"
    __table_args__ = (Index(None, "run", "id"),)

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    run: Mapped[str] = mapped_column(ForeignKey("runs.id"))
    attempt: Mapped[int] = mapped_column(Integer)
    step: Mapped[str] = mapped_column(Text)
    at: Mapped[datetime] = mapped_column(UtcTime)
    data: Mapped[bytes] = mapped_column(LargeBinary, comment="As it came, cut anywhere")


class QueueState(Struct, frozen=True):
    """Runs that wait or run; ``oldest_s``: seconds for which the oldest has waited."""

    waiting: int = 0
    running: int = 0
    oldest_s: float = 0.0


class RunRow(RunBody, frozen=True, kw_only=True):
    """A run with the columns that only the queue needs."""

    seq: int
    lease_until: datetime | None
    cancel_by: str | None
    measures: bool
    definition: SuiteDefinition | None

    @property
    def has_ended(self) -> bool:
        """Return whether the run is finished."""
        return self.state in ENDED

    def to_json(self) -> dict[str, Any]:
        """Return plain data as REST carries it."""
        body = to_plain(self)
        for name in ("seq", "lease_until", "cancel_by", "measures", "definition"):
            del body[name]
        return {**body, "against": msgspec.to_builtins(self.against)}


_NEW_RUN: dict[str, Any] = dict.fromkeys(RunRow.__struct_fields__) | {
    "seq": 0, "nodes": 1, "priority": 0, "attempts": 0, "doing": "", "reason": "",
    "cancelling": False, "explained": "", "measures": False,
}  # fmt: skip


def new_run(**stated: Any) -> RunRow:
    """Return a run that is not stored yet; the database numbers it."""
    return RunRow(**{**_NEW_RUN, **stated})


class HostRow(HostBody, frozen=True, kw_only=True):
    """A staging host."""

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {**to_plain(self), "quiet": msgspec.to_builtins(self.quiet)}


class StepRow(Struct, frozen=True):
    """A step's result; ``body`` is plain data."""

    attempt: int
    name: str
    host: str
    body: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {**self.body, "attempt": self.attempt, "host": self.host}


class PastStep(Struct, frozen=True):
    """A step's result among others of its kind; ``state`` is its run's, ``body`` plain data."""

    run: str
    state: str
    finished_at: datetime
    body: dict[str, Any]


class PrunedLog(Struct, frozen=True):
    """A log that was removed: when, by whom, and the link of the audit log that says so."""

    at: datetime
    by: str
    link: int
