"""What the repositories of canary runs answer: plain, immutable rows."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct

from compatgate.store.rows import to_plain

ACTIVE = ("leased", "preparing", "running", "judging")
"""States in which a worker has the run."""


class RunRow(Struct, frozen=True):
    """A run, as `compatgate.store.models.Run`; ``stack`` is plain data."""

    seq: int
    id: str
    suite: str
    state: str
    stack: dict[str, Any]
    target: str | None
    pool: str | None
    entry: str | None
    image: str | None
    gpu: str | None
    driver: str | None
    gpus: int
    nodes: int
    host: str | None
    priority: int
    purpose: str
    attempts: int
    max_attempts: int
    doing: str
    progress: float | None
    reason: str
    asked_by: str
    worker: str | None
    on_host: str | None
    not_before: datetime | None
    lease_until: datetime | None
    cancel_by: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.state != "queued" and self.state not in ACTIVE

    def to_json(self) -> dict[str, Any]:
        """Plain data for people and programs; the queue's own columns left out."""
        body = to_plain(self)
        for name in ("seq", "lease_until", "cancel_by"):
            del body[name]
        body["cancelling"] = self.cancel_by is not None and not self.has_ended
        return body


class HostRow(Struct, frozen=True):
    """A staging host.

    Attributes:
        quiet: plain data, as the worker declared it.
        busy: slots that runs have now.
    """

    name: str
    worker: str
    executor: str
    gpu: str | None
    driver: str | None
    slots: int
    health: str
    quiet: list[dict[str, Any]]
    registered_at: datetime
    seen_at: datetime
    busy: int = 0

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return to_plain(self)


class StepRow(Struct, frozen=True):
    """A step's result; ``body`` is plain data."""

    attempt: int
    name: str
    host: str
    body: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {**self.body, "attempt": self.attempt, "host": self.host}


class PastStep(Struct, frozen=True):
    """A step's result among others of its kind; ``state`` is its run's, ``body`` plain data."""

    run: str
    state: str
    finished_at: datetime
    body: dict[str, Any]


class OutputRow(Struct, frozen=True):
    """A piece of a log; ``id`` grows within a run."""

    id: int
    attempt: int
    step: str
    data: bytes


class PrunedLog(Struct, frozen=True):
    """A log that was removed: when, by whom, and the link of the audit log that says so."""

    at: datetime
    by: str
    link: int


class EvidenceRow(Struct, frozen=True):
    """A judged run as evidence; ``components`` is component to version as measured."""

    seq: int
    run: str
    suite: str
    sku: str
    driver: str
    components: dict[str, str]
    outcome: str
    finished: int
    development: bool
    known_at: datetime

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return to_plain(self)


class WarningRow(Struct, frozen=True):
    """A warning on an entry; open while ``closed_at`` is None."""

    id: int
    entry: str
    run: str
    suite: str
    sku: str
    driver: str
    message: str
    opened_at: datetime
    closed_at: datetime | None = None
    closed_by: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return to_plain(self)


class BaselineRow(Struct, frozen=True):
    """A version of a baseline; ``body`` is what the judge reads, as plain data."""

    id: int
    workload: str
    sku: str
    family: str
    metric: str
    version: int
    state: str
    body: dict[str, Any]
    proposed_at: datetime
    proposed_by: str
    decided_at: datetime | None
    decided_by: str | None

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return to_plain(self)
