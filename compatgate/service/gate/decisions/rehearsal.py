"""Rehearse the recording of a decision: do all of it, and undo it."""

from __future__ import annotations

import time

from compatgate.kit import clock
from compatgate.service.gate.decisions.batch_store import DecisionWriter
from compatgate.service.gate.questions.decider import NewDecision


class Rehearsal:
    """Records a decision that never stays.

    ``writer``: of the rehearsal alone, so that it waits for no batch.
    """

    def __init__(self, writer: DecisionWriter, stall_s: float) -> None:
        self._writer = writer
        self._stall_s = stall_s
        self._began: float | None = None

    def run(self) -> None:
        """Raise why no decision can be recorded."""
        began = self._began = time.monotonic()
        try:
            try:
                self._practise()
            except Exception:
                if time.monotonic() - began > self._stall_s:
                    raise
                self._practise()  # the server restarted
        finally:
            self._began = None

    def _practise(self) -> None:
        decision = NewDecision(
            "vd_rehearsal", clock.now(), None, "unknown", False, 0, None, "readyz", "rehearsal", 0
        )
        with self._writer.turn:
            self._writer.rehearse(decision)

    def interrupt_late(self) -> None:
        """Cut the connection of a rehearsal that has stalled."""
        if self._began is not None and self._began < time.monotonic() - self._stall_s:
            self._writer.interrupt()

    def close(self) -> None:
        """Close the connection, unless a rehearsal hangs on it."""
        if self._began is None:
            self._writer.close()
