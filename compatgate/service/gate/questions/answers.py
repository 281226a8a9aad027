"""Answer questions from facts, matrix and evidence, and log each decision.

A command that asks one question imports this alone: the services of all capabilities
(`compatgate.service.gate.questions.service`) take longer to import than the answer takes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from compatgate.core.evaluate import format_moment
from compatgate.core.facts import Facts
from compatgate.core.rule import Finding, Verdict
from compatgate.kit import clock
from compatgate.kit.database.database import Database
from compatgate.kit.database.opening import open_database
from compatgate.service.gate.decisions.batch_store import CommitMode
from compatgate.service.gate.decisions.decision_log import DecisionLog
from compatgate.service.gate.decisions.spool import SpoolOptions
from compatgate.service.gate.questions import decider
from compatgate.service.gate.questions.decider import (
    Answer,
    AnswerRecord,
    CompletedQuestion,
    Decider,
    SnapshotCache,
    decide,
    make_decision,
)
from compatgate.service.matrix.documents import revisions
from compatgate.service.matrix.snapshots.reader import Snapshots
from compatgate.service.matrix.snapshots.snapshot import Snapshot
from compatgate.service.runs.evidence import discards, evidence

if TYPE_CHECKING:
    from compatgate.core.binding import SuiteDefinition
    from compatgate.service.gate.questions.images import Images, ImageSettings
    from compatgate.service.gate.questions.wheels import WheelMeasurer, WheelSettings


class AnsweringGate:
    """Answers questions, and logs each decision; `Gate` adds the services of all capabilities.

    Any number of threads may use a gate, and a process may make one before it forks.

    Args:
        images: which images the gate reads; None: an image is only a label.
        commit: ``async``: an answer may leave before PostgreSQL's disk has the decision.
        wheels: indexes whose wheels the gate measures; None: packages without a record stay open.
        spool: where decisions wait while the database is unavailable; None: there are none then.
    """

    def __init__(
        self,
        database: Database,
        facts: Facts,
        *,
        overlays: Sequence[str] | None = None,
        images: ImageSettings | None = None,
        commit: CommitMode = "sync",
        wheels: WheelSettings | None = None,
        spool: SpoolOptions | None = None,
    ) -> None:
        self.database = database
        self.facts = facts
        self._overlays = overlays
        self._images = _make_images(images, overlays) if images else None
        self.snapshots = Snapshots(database, facts)
        self._wheels = _make_wheels(wheels, self.snapshots) if wheels and wheels.indexes else None
        self.snapshots.suites = _define_suites
        self._commit: CommitMode = commit
        self._log = self._make_log(spool)
        self._answers: SnapshotCache[Answer] = SnapshotCache(lambda answer: answer.size)
        self._decider = Decider()
        self.snapshots.on_new = self._clear_caches
        self._open_rooms()

    def _open_rooms(self) -> None:
        """Make what a gate has besides its answers; here, nothing."""

    def _make_log(self, spool: SpoolOptions | None) -> DecisionLog:
        """Return the log of decisions; a gate without a database has another one."""
        return DecisionLog(self.database, self._commit, spool)

    @classmethod
    def open(
        cls,
        database: str | None = None,
        *,
        make: bool = True,
        overlays: Sequence[str] | None = None,
        images: ImageSettings | None = None,
    ) -> Self:
        """Open a gate on a database.

        Args:
            database: URL, or path of an SQLite file; None: ``COMPATGATE_DATABASE``, else a file in
                the user's data folder.
            make: create an SQLite file that is missing or empty.
        """
        from compatgate.catalog import load_facts

        opened = open_database(database, make=make)
        return cls(opened, load_facts(overlays), overlays=overlays, images=images)

    def snapshot(self) -> Snapshot:
        """Return the current snapshot."""
        return self.snapshots.current()

    def answer(
        self, question: bytes, *, asked_by: str, source: str, image_s: float | None = None
    ) -> Answer:
        """Decide, log, and return the answer once the log has it."""
        decided = self.evaluate(question, asked_by=asked_by, source=source, image_s=image_s)
        self._log.record(*decided.row)
        return decided.answer

    def evaluate(
        self, question: bytes, *, asked_by: str, source: str, image_s: float | None = None
    ) -> AnswerRecord:
        """Decide without logging; `submit` logs what this returns.

        Args:
            asked_by: name of the token, or ``anonymous``.
            source: ``rest``, ``cli``, ``hook:kubernetes``, ...
            image_s: seconds to wait for the image; 0: unread; None: the configured deadline.
        """
        began = time.perf_counter_ns()
        now = clock.now()
        snapshot = self.snapshots.current()
        found = self._answers.get(question, snapshot, now)
        if found is not None:
            return _record_answer(found.at(format_moment(now)), now, began, asked_by, source)
        decider.check_storable(question)
        body, read, alone = self._complete(decider.decode_question(question), snapshot, image_s)
        if read:  # that may have taken seconds
            now, snapshot = clock.now(), self.snapshots.current()
        verdict, lasts = self._decide(body, snapshot, now, by_image=alone)
        answer = Answer.of(verdict)
        if lasts and not read:  # a tag may be another image by the next time
            self._answers.put(question, snapshot, answer, answer.verdict.valid_until, now)
        return _record_answer(answer, now, began, asked_by, source)

    def known(self, question: bytes, *, asked_by: str, source: str) -> AnswerRecord | None:
        """Return what `evaluate` would, where memory alone has it; never wait."""
        began = time.perf_counter_ns()
        snapshot = self.snapshots.at_hand()
        now = clock.now()
        found = self._answers.get(question, snapshot, now) if snapshot is not None else None
        if found is None:
            return None
        return _record_answer(found.at(format_moment(now)), now, began, asked_by, source)

    def reads_image(self, body: Mapping[str, Any]) -> bool:
        """Return whether `evaluate` would ask a registry about a question, and so may wait."""
        return self._images is not None and self._images.reads(body)

    def submit(self, decided: Sequence[AnswerRecord]) -> Future[None]:
        """Log decisions without waiting.

        Each answer may leave once the returned future is done.
        """
        return self._log.submit([one.row for one in decided])

    def decide(self, body: Mapping[str, Any], *, asked_by: str, source: str) -> Verdict:
        """Decide a parsed question and log the decision, as `answer` does."""
        return self.answer(decider.encode_question(body), asked_by=asked_by, source=source).verdict

    def preview(self, body: Mapping[str, Any], *, image_s: float | None = None) -> Verdict:
        """Return the verdict of `answer` without logging it."""
        snapshot = self.snapshots.current()
        completed = self._complete(body, snapshot, image_s)
        return self._decide(completed.body, snapshot, clock.now(), by_image=completed.alone)[0]

    def _decide(
        self, body: Any, snapshot: Snapshot, now: datetime, *, by_image: bool
    ) -> tuple[Verdict, bool]:
        """Return the verdict, and whether it holds as long as the snapshot.

        The wheel of a package without a record is measured in the background.
        """
        verdict = self._decider.decide(body, snapshot, now, by_image=by_image)
        if self._wheels is None:
            return verdict, True
        missing = self._wheels.missing(verdict, snapshot.facts)
        if not missing:
            return verdict, True
        found = self._wheels.ask(missing, snapshot.facts)
        if found.records:
            snapshot = self.snapshots.know(found.records) or snapshot
        explained = self._wheels.add_reasons(body, found)
        return self._decider.decide(explained, snapshot, now, by_image=by_image), not found.why

    def what_would(self, body: Mapping[str, Any], *, at: int | datetime) -> Verdict:
        """Decide a question with an earlier matrix and today's facts.

        A revision is evaluated today. A moment stands for its revision and evidence, evaluated on
        that day with the waivers and ends of life of that day.
        """
        if isinstance(at, datetime):
            now = at
            with self.database.reading() as session:
                number = revisions.find_revision_at(session, at)
                known = evidence.latest_number_at(session, at)
                discarded = discards.latest_discard(session, until=at)
            snapshot = self.snapshots.at(number, known, discarded)
        else:
            now = clock.now()
            snapshot = self.snapshots.at(at)
        completed = self._complete(body, snapshot)
        return decide(completed.body, snapshot, now, by_image=completed.alone)

    def refuse(
        self, body: Mapping[str, Any], finding: Finding, *, asked_by: str, source: str
    ) -> AnswerRecord:
        """Deny a question for a finding that is no rule's of the evaluation; log nothing.

        The question's image is not read.
        """
        began, now = time.perf_counter_ns(), clock.now()
        snapshot = self.snapshots.current()
        decider.check_storable(decider.encode_question(body))
        verdict = decider.deny(self._decider.decide(body, snapshot, now), finding, snapshot, now)
        return _record_answer(Answer.of(verdict), now, began, asked_by, source)

    def _clear_caches(self, _: Snapshot) -> None:
        self._answers.clear()
        self._decider.clear()

    def _complete(
        self, body: Any, snapshot: Snapshot, image_s: float | None = None
    ) -> CompletedQuestion:
        """Return a question completed with the stack of its image."""
        if self._images is None or image_s == 0:
            return CompletedQuestion(body)
        return self._images.complete(body, snapshot, image_s)

    def close(self) -> None:
        """Write pending decisions, and close the database."""
        self._log.close()
        self.database.close()


def _define_suites() -> Mapping[str, SuiteDefinition]:
    """Return the definitions of suites; asked only if a run is bound to one."""
    from compatgate.service.runs.queue.service import define_suites, load_library

    return define_suites(load_library)


def _record_answer(
    answer: Answer, now: datetime, began_ns: int, asked_by: str, source: str
) -> AnswerRecord:
    took_us = (time.perf_counter_ns() - began_ns) // 1000
    return AnswerRecord(answer, make_decision(answer.verdict, now, asked_by, source, took_us))


def _make_wheels(wheels: WheelSettings, snapshots: Snapshots) -> WheelMeasurer:
    from compatgate.service.gate.questions.wheels import (
        WheelMeasurer,  # a client for indexes: not for every command
    )

    return WheelMeasurer(wheels, snapshots.know)


def _make_images(images: ImageSettings, overlays: Sequence[str] | None) -> Images:
    from compatgate.service.gate.questions.images import (
        Images,  # a client for registries: not for every command
    )

    return Images(images, overlays)
