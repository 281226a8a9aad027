"""Hold the services of all capabilities on one database.

`Readiness` checks with a deadline that a decision can be logged: a database that has stalled
neither answers nor refuses, so the check runs in a thread of its own, one at a time.
"""

from __future__ import annotations

import copy
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from compatgate.core.evaluate import assess
from compatgate.core.stack import parse_stack
from compatgate.errors import CompatgateError, Unavailable, quote_error
from compatgate.kit import clock
from compatgate.kit.database import tables
from compatgate.kit.database.tables import SchemaMismatch
from compatgate.service.access.tokens.browser_sessions import BrowserSessions
from compatgate.service.access.tokens.service import Tokens
from compatgate.service.attention.notices.service import IncidentService
from compatgate.service.attention.notices.webhook import IncidentWebhook, WebhookSender
from compatgate.service.attention.notices.worker import IncidentWorker
from compatgate.service.audit.events.refusals import RefusalLog
from compatgate.service.audit.events.service import History
from compatgate.service.gate.decisions import repository as decisions
from compatgate.service.gate.decisions.decision_log import LogState
from compatgate.service.gate.decisions.outages import Degraded, OutageKeeper, OutageOptions
from compatgate.service.gate.far import bundles
from compatgate.service.gate.far.receiving import DeliveryDesk
from compatgate.service.gate.questions.answers import AnsweringGate
from compatgate.service.gate.questions.computing import Compute, compute_here
from compatgate.service.matrix.documents.revisions import Edit
from compatgate.service.matrix.documents.service import MatrixService
from compatgate.service.matrix.proposals.service import ProposalService
from compatgate.service.matrix.snapshots.snapshot import seal_bundle
from compatgate.service.nodes.reports.service import Nodes
from compatgate.service.nodes.upgrades.freezes import Freezes, KnownGood
from compatgate.service.nodes.upgrades.service import Upgrades
from compatgate.service.runs.baselines.service import BaselineService
from compatgate.service.runs.queue.service import Runs, load_library

if TYPE_CHECKING:
    pass


class Gate(AnsweringGate):
    """The services of all capabilities on one database.

    Any number of threads may use a gate, and a process may make one before it forks.
    """

    def _open_rooms(self) -> None:
        """Make the services of the capabilities."""
        database, facts = self.database, self.facts
        self.runs = Runs(database, facts, self.snapshots, load_library)
        self.snapshots.suites = self.runs.define_suites
        self.matrix = MatrixService(database, facts, self.snapshots, self.runs.find_unknown_suites)
        self.proposals = ProposalService(
            database, facts, self.snapshots, self._backtest, self.matrix.open_reader
        )
        self.tokens = Tokens(database)
        self.sessions = BrowserSessions(database, self.tokens)
        self.history = History(database)
        self.refusals = RefusalLog(database)
        self.baselines = BaselineService(database)
        self.nodes = Nodes(database, facts, self.snapshots)
        self.upgrades = Upgrades(database, self.snapshots, self._plan)
        self.incidents = IncidentService(
            database, self.snapshots, self.runs, self.baselines, self.nodes, self.upgrades
        )
        self._watcher: IncidentWorker | None = None
        self.freezes = Freezes(database)
        self.known_good = KnownGood(database, self.matrix)
        self.bundles = bundles.BundleSource(database, facts, self._overlays, self.snapshots)
        self.deliveries = DeliveryDesk(database, self._commit)
        self.readiness = Readiness(self._check_recording)
        self._keeper: OutageKeeper | None = None
        self.compute: Compute = compute_here

    def _backtest(self, edits: Sequence[Edit], days: int) -> dict[str, Any]:
        """Return the backtest of edits as plain data; imported late, as it asks a gate."""
        from compatgate.service.gate.comparison.backtests import backtest_edits

        found: dict[str, Any] = msgspec.to_builtins(backtest_edits(self, edits, days=days))
        return found

    def _plan(self, target: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the plan of an upgrade, nodes by key; imported late, as it asks a gate."""
        from compatgate.service.gate.comparison.service import plan_upgrade

        return plan_upgrade(self, target, body, by_key=True)

    def keep_through_outages(self, options: OutageOptions, confirmed_at: datetime) -> None:
        """Watch the database; use the last-known-good snapshot while it is unavailable."""
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

    def watch_incidents(self, webhook: IncidentWebhook | None) -> None:
        """Survey incidents and post them in threads of this process, until it closes."""
        sender = WebhookSender(self.database, webhook) if webhook else None
        self._watcher = IncidentWorker(self.incidents, sender)
        self._watcher.start()

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

    def show_verdict(self, verdict_id: str) -> dict[str, Any]:
        """Return a verdict as first given."""
        with self.database.reading() as session:
            body = decisions.find_verdict(session, verdict_id)
        stored: dict[str, Any] = msgspec.json.decode(body)
        return stored

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
            valid_for: how long decisions may rest on an issued bundle; None: for ever.
        """
        from compatgate.service.gate.far.bundles import issue_bundle
        from compatgate.service.matrix.snapshots.reader import make_bundle_payload

        with self.database.reading() as session:
            payload = make_bundle_payload(
                session, self.facts, self._overlays, revision, self.snapshots.suites
            )
        return seal_bundle(issue_bundle(payload, valid_for) if issued else payload)

    def still_holds(self, verdict: Mapping[str, Any]) -> bool:
        """Tell whether the question of a stored verdict has the same answer now."""
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

    def close(self) -> None:
        """Write pending decisions and refusals, and close the database."""
        if self._keeper is not None:
            self._keeper.close()
        if self._watcher is not None:
            self._watcher.close()
        self.nodes.inventory.close()
        self.tokens.close()
        self.refusals.close()
        self.deliveries.close()
        super().close()


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
            self.error = Unavailable(f"the gate cannot decide: {quote_error(error)}")
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
        """Return the state, at most `REUSED_SECONDS` old."""
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
