"""Collect decisions in a batch, and follow it on its way to the database."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import Future

from compatgate.service.gate.decisions.batches import DecisionBatch
from compatgate.service.gate.decisions.delivery import Row
from compatgate.service.gate.questions.decider import NewDecision


class Batch:
    """Decisions of one transaction, collected and then on their way to the database.

    Attributes:
        wanted: decisions that the log waits for, and then sets `is_enough`.
        made: None: the batch is still open.
        is_taken: the watching thread has taken it to the spool.
    """

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.done: Future[None] = Future()
        self.wanted: int | None = None
        self.is_enough = threading.Event()
        self.began = 0.0
        self.made: DecisionBatch | None = None
        self.is_taken = False

    @property
    def decisions(self) -> list[NewDecision]:
        """Return the decisions alone."""
        return [decision for decision, _ in self.rows]

    @property
    def bodies(self) -> dict[str, str]:
        """Return the JSON of the verdicts, by id."""
        return {decision.verdict_id: body for decision, body in self.rows}


class Taken(Exception):
    """The batch is in the spool."""


class RecentIds:
    """Ids added lately, in two generations; the older one is dropped when the newer one is full.

    Dropping all at once would make the next batches store every verdict again.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._newer: set[str] = set()
        self._older: set[str] = set()

    def __contains__(self, key: object) -> bool:
        return key in self._newer or key in self._older

    def add(self, keys: Iterable[str]) -> None:
        """Add ids; forget the older ones if they are many."""
        self._newer.update(keys)
        if len(self._newer) >= self._size:
            self._older, self._newer = self._newer, set()

    def clear(self) -> None:
        """Forget every id."""
        self._newer.clear()
        self._older.clear()
