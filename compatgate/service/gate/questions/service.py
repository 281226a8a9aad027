"""Answer questions from facts, matrix and evidence, and log each decision."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from compatgate.core.evaluate import assess, format_moment
from compatgate.core.facts import Facts
from compatgate.core.rule import Finding, Verdict
from compatgate.core.stack import parse_stack
from compatgate.errors import CompatgateError
from compatgate.kit import clock
from compatgate.kit.database import tables
from compatgate.kit.database.database import Database
from compatgate.kit.database.tables import SchemaMismatch
from compatgate.service.gate.decisions.batch_store import CommitMode
from compatgate.service.gate.decisions.decision_log import DecisionLog, LogState
from compatgate.service.gate.decisions.outages import Degraded, OutageKeeper, OutageOptions
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
from compatgate.service.gate.questions.readiness import Readiness
from compatgate.service.matrix.snapshots.reader import Snapshots, make_bundle_payload
from compatgate.service.matrix.snapshots.snapshot import Snapshot, seal_bundle
from compatgate.service.runs.evidence.evidence import StoredEvidence

if TYPE_CHECKING:
    from compatgate.service.access.tokens import Tokens
    from compatgate.service.gate.questions.images import Images, ImageSettings
    from compatgate.service.gate.questions.wheels import WheelMeasurer, WheelSettings

P = ParamSpec("P")
T = TypeVar("T")


class Gate:
    """Answers questions, and logs each decision.

    Any number of threads may use a gate, and a process may make one before it forks. Without
    images, an image is only a label; without wheels, packages without a record stay open.
    """

    def __init__(
        self,
        snapshots: Snapshots,
        *,
        overlays: Sequence[str] | None = None,
        images: ImageSettings | None = None,
        commit: CommitMode = "sync",
        wheels: WheelSettings | None = None,
        spool: SpoolOptions | None = None,
    ) -> None:
        self.database = snapshots.database
        self.facts = snapshots.facts
        self.snapshots = snapshots
        self.overlays = overlays
        self._images: Images | None = None
        if images:  # a client for registries: not for every command
            from compatgate.service.gate.questions.images import Images

            self._images = Images(images, overlays)
        self._wheels: WheelMeasurer | None = None
        if wheels and wheels.measures:  # a client for indexes: not for every command
            from compatgate.service.gate.questions.wheels import WheelMeasurer

            self._wheels = WheelMeasurer(wheels, snapshots.know)
        self.commit: CommitMode = commit
        self._log = self._make_log(spool)
        self._answers: SnapshotCache[Answer] = SnapshotCache(lambda answer: answer.size)
        self._decider = Decider()
        snapshots.on_new = self._clear_caches
        self._keeper: OutageKeeper | None = None
        self.readiness = Readiness(self._check_recording)
        self.compute: Compute = compute_here

    def _make_log(self, spool: SpoolOptions | None) -> DecisionLog:
        """Return the log of decisions; a gate without a database has another one."""
        return DecisionLog(self.database, self.commit, spool)

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

        ``source``: ``rest``, ``cli``, ``hook:kubernetes``, ... ``image_s``: seconds to wait for the
        image; 0: it stays unread; None: the configured deadline.
        """
        began, now, snapshot = time.perf_counter_ns(), clock.now(), self.snapshots.current()
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

    def state_at(self, at: int | datetime) -> tuple[Snapshot, datetime]:
        """Return the snapshot of a revision or a moment, and the moment of its evaluation."""
        if isinstance(at, datetime):
            return self.snapshots.at_moment(at), at
        return self.snapshots.at(at), clock.now()

    def what_would(self, body: Mapping[str, Any], *, at: int | datetime) -> Verdict:
        """Decide a question with an earlier matrix and today's facts.

        A revision is evaluated today. A moment stands for its revision and evidence, evaluated on
        that day with the waivers and ends of life of that day.
        """
        snapshot, now = self.state_at(at)
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
        if self._images is None or image_s == 0:
            return CompletedQuestion(body)
        return self._images.complete(body, snapshot, image_s)

    def keep_through_outages(
        self, tokens: Tokens, options: OutageOptions, confirmed_at: datetime
    ) -> None:
        """Watch the database; use the last-known-good snapshot while it is unavailable."""
        self._keeper = OutageKeeper(self.database, self.snapshots, tokens, options, confirmed_at)
        self._keeper.start()

    def degraded(self) -> Degraded | None:
        """Return the state without the database, from memory; None: it answers, and records."""
        return None if self._keeper is None else self._keeper.degraded(self._log.away)

    def with_state(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return an answer with ``degraded`` if the gate decides without its database."""
        degraded = self.degraded()
        return body if degraded is None else {**body, "degraded": degraded.to_json()}

    def require_writable(self) -> None:
        """Refuse a change if this gate has no database; do nothing here."""

    def require_pages(self) -> None:
        """Refuse a page if this gate has no database; do nothing here."""

    def snapshot_age_s(self) -> float:
        """Return the seconds since the database last confirmed the snapshot; 0 if unknown."""
        return self._keeper.watch.age_s() if self._keeper is not None else 0.0

    @property
    def url(self) -> str:
        """Return the URL of the database without its password."""
        return self.database.shown

    @property
    def log_state(self) -> LogState:
        """Return where this process logs its decisions; never wait."""
        return self._log.state

    def find_newer_schema(self) -> SchemaMismatch | None:
        """Return the error if a newer program has upgraded the database meanwhile; None: no."""
        try:
            tables.refuse_newer(self.url, tables.current_version(self.database))
        except SchemaMismatch as error:
            return error
        except CompatgateError:  # the database does not answer
            pass
        return None

    def check_ready(self) -> dict[str, Any]:
        """Check that the gate can decide, and return its state."""
        keeper = self._keeper
        snapshot = self.snapshots.refresh() if keeper is None else self.snapshots.current()
        state: dict[str, Any] = {
            "database": self.url,
            "decision_commit": self.commit,
            "schema": tables.current_version(self.database) if keeper is None else keeper.schema,
            "revision": snapshot.revision,
            "evidence": snapshot.evidence,
            "targets": len(snapshot.targets),
            "unusable_targets": snapshot.unusable,
            "facts": self.facts.digest,
        }
        if keeper is not None:
            state["snapshot_age_s"] = round(keeper.watch.age_s(), 1)
        if (degraded := self.degraded()) is not None:
            state["degraded"] = degraded.to_json()
        return state

    def _check_recording(self) -> dict[str, Any]:
        self._log.rehearse()
        return self.check_ready()

    def export_bundle(
        self,
        revision: int | None = None,
        *,
        issued: bool = False,
        valid_for: timedelta | None = None,
    ) -> bytes:
        """Return a bundle as bytes: the matrix, evidence and overlays.

        ``valid_for``: how long decisions may rest on an issued bundle; None: for ever.
        """
        from compatgate.service.gate.far.bundles import issue_bundle

        with self.database.reading() as session:
            payload = make_bundle_payload(session, self.snapshots, self.overlays, revision)
        return seal_bundle(issue_bundle(payload, valid_for) if issued else payload)

    def still_holds(self, verdict: Mapping[str, Any]) -> bool:
        """Tell whether the question of a stored verdict has the same answer now."""
        snapshot = self.snapshots.refresh()  # a signature lasts longer than another process lags
        if verdict["target"] is None:
            return bool(verdict["facts"] == snapshot.facts.digest)
        target = snapshot.targets.get(verdict["target"])
        if target is None:
            return False
        stack = parse_stack(verdict["stack"], image=verdict["image"])
        found = assess(
            stack,
            target,
            facts=snapshot.facts,
            matrix=snapshot.matrix,
            now=clock.now(),
            with_fixes=False,
        )
        return (found.verdict, found.allowed) == (verdict["verdict"], verdict["allowed"])

    def close(self) -> None:
        """Write pending decisions, and close the database."""
        if self._keeper is not None:
            self._keeper.close()
        self._log.close()
        self.database.close()


def make_gate(database: Database, facts: Facts, kind: type[Gate] = Gate, **options: Any) -> Gate:
    """Return a gate on a database, with the options of `Gate`: all that one question needs."""
    return kind(Snapshots(database, facts, StoredEvidence()), **options)


def _record_answer(
    answer: Answer, now: datetime, began_ns: int, asked_by: str, source: str
) -> AnswerRecord:
    took_us = (time.perf_counter_ns() - began_ns) // 1000
    return AnswerRecord(answer, make_decision(answer.verdict, now, asked_by, source, took_us))


class Compute(Protocol):
    """Calls a function of a module with plain values, snapshots and facts."""

    def __call__(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of the function, or raise its error."""
        ...


def compute_here(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function in this process: of a command, whose user waits for nothing else."""
    return function(*args, **kwargs)
