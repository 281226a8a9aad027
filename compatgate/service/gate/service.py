"""Answer questions from facts, matrix and evidence, and log each decision.

`Gate` also holds the services of all capabilities on one database. `Readiness` checks with a
deadline that a decision can be logged: a database that has stalled neither answers nor
refuses, so the check runs in a thread of its own, one at a time.
"""

from __future__ import annotations

import copy
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

import msgspec

from compatgate.core.evaluate import assess, format_moment
from compatgate.core.facts import Facts
from compatgate.core.rule import Finding, Verdict
from compatgate.core.stack import parse_stack
from compatgate.errors import CompatgateError, Unavailable
from compatgate.kit import clock
from compatgate.kit.database import tables
from compatgate.kit.database.database import Database
from compatgate.service.audit.refusals import RefusalLog
from compatgate.service.audit.service import History
from compatgate.service.baselines.exchange import BaselineExchange
from compatgate.service.baselines.service import BaselineService
from compatgate.service.far.receiving import DeliveryDesk
from compatgate.service.gate import bundles, decider
from compatgate.service.gate import repository as decisions
from compatgate.service.gate.batch_store import CommitMode
from compatgate.service.gate.decider import (
    Answer,
    AnswerRecord,
    CompletedQuestion,
    Decider,
    SnapshotCache,
    decide,
    make_decision,
)
from compatgate.service.gate.decision_log import DecisionLog, LogState
from compatgate.service.gate.outages import Degraded, OutageKeeper, OutageOptions
from compatgate.service.gate.snapshot import Snapshot, seal_bundle
from compatgate.service.gate.snapshot_reader import Snapshots
from compatgate.service.gate.spool import SpoolOptions
from compatgate.service.matrix import revisions
from compatgate.service.matrix.revisions import Edit
from compatgate.service.matrix.service import MatrixService
from compatgate.service.nodes.service import Nodes
from compatgate.service.notices.desk import NoticeDesk
from compatgate.service.notices.service import IncidentService
from compatgate.service.preferences.service import PreferenceStore
from compatgate.service.proposals.service import ProposalService
from compatgate.service.runs import discards, evidence
from compatgate.service.runs.service import Runs, load_library
from compatgate.service.tokens.browser_sessions import BrowserSessions
from compatgate.service.tokens.service import Tokens
from compatgate.service.upgrades.calendar import FreezeCalendar, KnownGoodChannel
from compatgate.service.upgrades.service import Upgrades

if TYPE_CHECKING:
    from compatgate.service.gate.images import Images, ImageSettings
    from compatgate.service.gate.wheels import WheelMeasurer, WheelSettings


class Gate:
    """The services of all capabilities on one database.

    Any number of threads may use a gate, and a process may make one before it forks.

    Args:
        database: open, with its schema.
        facts: the catalog.
        overlays: the operator's fact files.
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
        self.matrix = MatrixService(database, facts, self.snapshots)
        self.proposals = ProposalService(database, facts, self.snapshots, self._backtest)
        self.tokens = Tokens(database)
        self.sessions = BrowserSessions(database, self.tokens)
        self.preferences = PreferenceStore(database)
        self.history = History(database)
        self.refusals = RefusalLog(database)
        self.runs = Runs(database, facts, self.snapshots, load_library)
        self.snapshots.suites = self.runs.define_suites
        self.baselines = BaselineService(database)
        self.exchange = BaselineExchange(database, lambda: self.runs.catalogue(), facts)
        self.nodes = Nodes(database, facts, self.snapshots)
        self.upgrades = Upgrades(database, self.snapshots, self._plan)
        self.incidents = IncidentService(
            database, self.snapshots, self.runs, self.baselines, self.nodes, self.upgrades
        )
        self.notices = NoticeDesk(database, self.incidents)
        self.freezes = FreezeCalendar(database)
        self.known_good = KnownGoodChannel(database, self.matrix)
        self.bundles = bundles.BundleSource(database, facts, overlays, self.snapshots)
        self._commit: CommitMode = commit
        self._log = self._make_log(spool)
        self.deliveries = DeliveryDesk(database, commit)
        self._answers: SnapshotCache[Answer] = SnapshotCache(lambda answer: answer.size)
        self._decider = Decider()
        self.snapshots.on_new = self._clear_caches
        self.readiness = Readiness(self._check_recording)
        self._keeper: OutageKeeper | None = None

    def _backtest(self, edits: Sequence[Edit], days: int) -> dict[str, Any]:
        """Return the backtest of edits as plain data; imported late, as it asks a gate."""
        from compatgate.service.backtests.service import backtest_edits

        found: dict[str, Any] = msgspec.to_builtins(backtest_edits(self, edits, days=days))
        return found

    def _plan(self, target: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the plan of an upgrade, nodes by key; imported late, as it asks a gate."""
        from compatgate.service.plans.service import plan_upgrade

        return plan_upgrade(self, target, body, by_key=True)

    def _make_log(self, spool: SpoolOptions | None) -> DecisionLog:
        """Return the log of decisions; a gate without a database has another one."""
        return DecisionLog(self.database, self._commit, spool)

    def keep_through_outages(self, options: OutageOptions, confirmed_at: datetime) -> None:
        """Watch the database, and go on with the last-known-good snapshot while it is unavailable.

        Args:
            options: of the operator.
            confirmed_at: when the database last confirmed the snapshot in memory.
        """
        self._keeper = OutageKeeper(
            self.database, self.snapshots, self.tokens, options, confirmed_at
        )
        self._keeper.start()

    def degraded(self) -> Degraded | None:
        """Return the state without the database, from memory; None: it answers, and records."""
        if self._keeper is None:
            return None
        return self._keeper.degraded() or self._keeper.describe_log(self._log.away)

    def require_writable(self) -> None:
        """Refuse a change if this gate has no database; do nothing here."""

    def require_pages(self) -> None:
        """Refuse a page if this gate has no database; do nothing here."""

    def watch_incidents(self) -> None:
        """Survey incidents and send notices in threads of this process, until it closes."""
        self.notices.start()

    def snapshot_age_s(self) -> float:
        """Return the seconds since the database last confirmed the snapshot; 0 if unknown."""
        return self._keeper.watch.age_s() if self._keeper is not None else 0.0

    @classmethod
    def open(
        cls,
        database: str | None = None,
        *,
        overlays: Sequence[str] | None = None,
        images: ImageSettings | None = None,
    ) -> Self:
        """Open a gate on a database.

        Args:
            database: URL, or path of an SQLite file, which is made and migrated as needed; None:
                ``COMPATGATE_DATABASE``, else a file in the user's data folder.
            overlays: the operator's fact files.
            images: as for `Gate`.

        Raises:
            Unavailable: the database does not answer, or has another schema.
        """
        from compatgate.catalog import load_facts

        opened = Database.open(database)
        tables.prepare_schema(opened)
        return cls(opened, load_facts(overlays), overlays=overlays, images=images)

    @property
    def url(self) -> str:
        """Return the URL of the database without its password."""
        return self.database.shown

    @property
    def log_state(self) -> LogState:
        """Return where this process logs its decisions; never wait."""
        return self._log.state

    def snapshot(self) -> Snapshot:
        """Return the current snapshot."""
        return self.snapshots.current()

    def answer(
        self, question: bytes, *, asked_by: str, source: str, image_s: float | None = None
    ) -> Answer:
        """Decide, log, and return the answer once the log has it.

        Args:
            question: as of `evaluate`.
            asked_by: as of `evaluate`.
            source: as of `evaluate`.
            image_s: as of `evaluate`.

        Raises:
            CompatgateError: as of `evaluate`.
            Unavailable: the decision cannot be logged.
        """
        decided = self.evaluate(question, asked_by=asked_by, source=source, image_s=image_s)
        self._log.record(*decided.row)
        return decided.answer

    def evaluate(
        self, question: bytes, *, asked_by: str, source: str, image_s: float | None = None
    ) -> AnswerRecord:
        """Decide without logging; `submit` logs what this returns.

        Args:
            question: JSON of the request body.
            asked_by: name of the token, or ``anonymous``.
            source: ``rest``, ``cli``, ``hook:kubernetes``, ...
            image_s: seconds to wait for the image; 0: unread; None: the configured deadline.

        Raises:
            BadInput: names the field.
            NotFound: the target or the image does not exist.
            RequestTooLarge: the verdict would take too much of the database.
            Unavailable: the database or a registry does not answer; there is no decision.
            Damaged: the image is not what its digest says.
            TooLarge: the image is a decompression bomb.
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

        Raises:
            Unavailable: the log does not keep up.
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

        Args:
            body: as `decide`.
            at: a revision, evaluated today; or a moment: its revision and evidence, evaluated on
                that day with the waivers and ends of life of that day.

        Raises:
            NotFound: the revision does not exist, or the target did not exist at it.
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

        Args:
            body: of the question; its image is not read.
            finding: why it is denied.
            asked_by: as of `evaluate`.
            source: as of `evaluate`.

        Raises:
            CompatgateError: the question cannot be decided.
        """
        began, now = time.perf_counter_ns(), clock.now()
        snapshot = self.snapshots.current()
        decider.check_storable(decider.encode_question(body))
        verdict = decider.deny(self._decider.decide(body, snapshot, now), finding, snapshot, now)
        return _record_answer(Answer.of(verdict), now, began, asked_by, source)

    def show_verdict(self, verdict_id: str) -> dict[str, Any]:
        """Return a verdict as first given.

        Raises:
            NotFound: this gate never gave that verdict.
        """
        with self.database.reading() as session:
            body = decisions.find_verdict(session, verdict_id)
        stored: dict[str, Any] = msgspec.json.decode(body)
        return stored

    def check_ready(self) -> dict[str, Any]:
        """Check that the gate can decide, and return its state.

        Raises:
            Unavailable: the gate cannot decide; says why.
        """
        keeper = self._keeper
        snapshot = self.snapshots.refresh() if keeper is None else self.snapshots.current()
        state: dict[str, Any] = {
            "database": self.url,
            "decision_commit": self._commit,
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
        """Check that a decision can be recorded, and return the state of `check_ready`."""
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

        Args:
            revision: of the matrix; None: the latest.
            issued: the bundle is to be signed, and says when it was issued.
            valid_for: how long decisions may rest on an issued bundle; None: for ever.

        Raises:
            NotFound: the revision does not exist.
        """
        from compatgate.service.gate.bundles import issue_bundle
        from compatgate.service.gate.snapshot_reader import make_bundle_payload

        with self.database.reading() as session:
            payload = make_bundle_payload(
                session, self.facts, self._overlays, revision, self.snapshots.suites
            )
        return seal_bundle(issue_bundle(payload, valid_for) if issued else payload)

    def still_holds(self, verdict: Mapping[str, Any]) -> bool:
        """Tell whether the question of a stored verdict has the same answer now.

        Args:
            verdict: as JSON. One about described pools rests on the facts alone.
        """
        snapshot = self.snapshots.current()
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
        """Write pending decisions and refusals, and close the database."""
        if self._keeper is not None:
            self._keeper.close()
        self.notices.close()
        self.nodes.inventory.close()
        self.tokens.close()
        self.refusals.close()
        self.deliveries.close()
        self._log.close()
        self.database.close()


def _record_answer(
    answer: Answer, now: datetime, began_ns: int, asked_by: str, source: str
) -> AnswerRecord:
    took_us = (time.perf_counter_ns() - began_ns) // 1000
    return AnswerRecord(answer, make_decision(answer.verdict, now, asked_by, source, took_us))


def _make_wheels(wheels: WheelSettings, snapshots: Snapshots) -> WheelMeasurer:
    from compatgate.service.gate.wheels import (
        WheelMeasurer,  # a client for indexes: not for every command
    )

    return WheelMeasurer(wheels, snapshots.know)


def _make_images(images: ImageSettings, overlays: Sequence[str] | None) -> Images:
    from compatgate.service.gate.images import (
        Images,  # a client for registries: not for every command
    )

    return Images(images, overlays)


DEADLINE_SECONDS = 2.0
REUSED_SECONDS = 1.0
"""Time for which a result is reused."""
_HINT = "the database or its disk has stalled; the check continues, ask again"


class _ReadinessCheck:
    """A check that is running, or that ended with a state or an error."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.ended = 0.0
        self.over = threading.Event()
        self.state: dict[str, Any] = {}
        self.error: CompatgateError | None = None

    def run(self, check: Callable[[], dict[str, Any]]) -> None:
        try:
            self.state = check()
        except CompatgateError as error:
            self.error = error
        except Exception as error:
            self.error = Unavailable(f"the gate cannot decide: {error}")
        self.ended = time.monotonic()
        self.over.set()

    @property
    def is_recent(self) -> bool:
        return not self.over.is_set() or time.monotonic() - self.ended < REUSED_SECONDS


class Readiness:
    """The latest check's result, shared by any number of threads.

    Args:
        check: returns the state, or raises an error; may never return.
    """

    def __init__(self, check: Callable[[], dict[str, Any]]) -> None:
        self._check = check
        self._choosing = threading.Lock()
        self._latest: _ReadinessCheck | None = None
        self._process = os.getpid()

    def state(self) -> dict[str, Any]:
        """Return the state, at most `REUSED_SECONDS` old.

        Raises:
            Unavailable: the gate is not ready, or the check takes longer than the deadline.
        """
        latest = self._recent()
        left = latest.began + DEADLINE_SECONDS - time.monotonic()
        if not latest.over.wait(max(left, 0.0)):
            what = f"recording a decision takes longer than {DEADLINE_SECONDS:g} seconds"
            raise Unavailable(what, field="database", hint=_HINT)
        if latest.error is not None:
            raise copy.copy(latest.error)
        return latest.state

    def _recent(self) -> _ReadinessCheck:
        """Return the running check, a recent one, or a new one."""
        with self._choosing:
            if self._process != os.getpid():  # the parent's check never ends in this process
                self._latest, self._process = None, os.getpid()
            if self._latest is None or not self._latest.is_recent:
                new = _ReadinessCheck()
                thread = threading.Thread(
                    target=new.run, args=(self._check,), name="readiness", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError:  # the system has no threads left
                    raise Unavailable(
                        "the system cannot start another thread", hint="ask again"
                    ) from None
                self._latest = new
            return self._latest
