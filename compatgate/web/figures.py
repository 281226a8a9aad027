"""Read the state of a gate for Prometheus; a scrape never waits for a stalled database.

Figures that need the database are read in a thread, and carry their age.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from typing import TYPE_CHECKING, Generic, TypeVar

from msgspec import Struct
from prometheus_client.core import Metric

from compatgate.core.incidents import KINDS, LEVELS
from compatgate.core.request import DriftKind
from compatgate.errors import CompatgateError
from compatgate.kit import clock
from compatgate.service.runs.evidence.pools import assess_freshness
from compatgate.web.metric_table import GATE

if TYPE_CHECKING:
    from compatgate.core.matrix import Evidence
    from compatgate.kit.http.certificates import CertificatePair
    from compatgate.service.app import Rooms
    from compatgate.service.matrix.snapshots.snapshot import Snapshot
    from compatgate.web.service import Settings

EVERY_SECONDS = 10.0
"""Maximum age of database figures before a scrape has them read again."""
PATIENCE_SECONDS = 0.5
"""Maximum wait of the scrape for figures."""
_READY_SECONDS = 60.0
_OTHER = "other"
_NOT_FRESH = ("missing", "stale", "failed")
_DRIFT_ALWAYS: frozenset[DriftKind] = frozenset({"driver", "gpu"})
"""Properties that have a figure of every target, also where no node differs."""
T = TypeVar("T")


class Background(Generic[T]):
    """The latest result of a function that may never return; one thread at a time calls it."""

    def __init__(self, read: Callable[[], T]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._thread: threading.Thread | None = None
        self._result: tuple[T, float] | None = None
        self._began = 0.0

    def latest(self) -> tuple[T, float] | None:
        """Return the result and its age in seconds; None: there is none yet."""
        with self._lock:
            if self._process != os.getpid():  # the parent's thread never ends in this process
                self._thread, self._process = None, os.getpid()
            now = time.monotonic()
            thread = None
            running = self._thread is not None and self._thread.is_alive()
            if not running and (not self._began or now - self._began >= EVERY_SECONDS):
                thread = threading.Thread(target=self._run, name="figures", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # the system has no threads left
                    thread = None
                else:
                    self._thread, self._began = thread, now
        if thread is not None:
            thread.join(PATIENCE_SECONDS)
        result = self._result
        return None if result is None else (result[0], time.monotonic() - result[1])

    def _run(self) -> None:
        began = time.monotonic()
        try:
            self._result = self._read(), began
        except CompatgateError:  # counted as an error of the database; the figures grow older
            return


class StoredFigures(Struct, frozen=True):
    """Figures of the database, by their labels; drift also of targets beyond the limit."""

    runs: dict[tuple[str], int]
    oldest_run_s: float
    drifted: dict[tuple[str, DriftKind], int]
    incidents: dict[tuple[str, str], int]


class GateState:
    """The state of a gate at a scrape, as the table of metrics reads it; None: not known."""

    def __init__(
        self,
        rooms: Rooms,
        targets: frozenset[str],
        ready: tuple[bool, float] | None,
        stored: tuple[StoredFigures, float] | None,
        certificate: CertificatePair | None,
    ) -> None:
        self.gate = rooms.gate
        self.snapshot = rooms.gate.snapshots.known()
        self.spool = spool = rooms.gate.log_state
        waits_s = (clock.now() - spool.oldest).total_seconds() if spool.oldest else 0.0
        self.spool_oldest_s = max(0.0, waits_s)
        self.ready = (ready[0] and ready[1] < _READY_SECONDS) if ready else None
        self.stored = stored[0] if stored else None
        self.stored_age_s = stored[1] if stored else None
        self.drifted: dict[tuple[str, str], int] = {}
        if self.stored:
            drifted = self.stored.drifted
            kinds = _DRIFT_ALWAYS | {what for _, what in drifted}
            self.drifted = dict.fromkeys(product(targets, kinds), 0)
            for (target, what), number in drifted.items():  # the other targets count together
                key = (target if target in targets else _OTHER, what)
                self.drifted[key] = self.drifted.get(key, 0) + number
        evidence = evidence_of(self.snapshot, targets) if self.snapshot is not None else {}
        self.evidence_ages = {
            (name,): age for name, (age, _) in evidence.items() if age is not None
        }
        self.evidence_not_fresh = {
            (name, state): n
            for name, (_, counts) in evidence.items()
            for state, n in counts.items()
        }
        self.certificate = certificate


class StateCollector:
    """The gate's state, read at each scrape."""

    def __init__(
        self, rooms: Rooms, settings: Settings, targets: Callable[[], frozenset[str]]
    ) -> None:
        self._rooms = rooms
        self._settings = settings
        self._targets = targets
        self._stored = Background(self._read_stored)
        self._ready = Background(self._read_ready)

    def _read_ready(self) -> bool:
        try:
            self._rooms.gate.readiness.state()
        except CompatgateError:
            return False
        return True

    def _read_stored(self) -> StoredFigures:
        queue = self._rooms.runs.queue_state()
        drifted: Counter[tuple[str, DriftKind]] = Counter()
        for group in self._rooms.nodes.group_drift():
            drifted[group.target, group.what] += group.nodes
        counts = self._rooms.incidents.count()
        incidents: dict[tuple[str, str], int] = {
            (kind, level): counts.get(kind, {}).get(level, 0)
            for kind, level in product(KINDS, LEVELS)
        }
        runs = {("waiting",): queue.waiting, ("running",): queue.running}
        return StoredFigures(runs, queue.oldest_s, drifted, incidents)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        ready, stored = self._ready.latest(), self._stored.latest()
        certificate = self._settings.certificate
        state = GateState(self._rooms, self._targets(), ready, stored, certificate)
        yield from (spec.collect(state) for spec in GATE if spec.read is not None)


def evidence_of(
    snapshot: Snapshot, names: Iterable[str]
) -> dict[str, tuple[float | None, dict[str, int]]]:
    """Return the age in seconds of the oldest required evidence, and what is not fresh, by target.

    Targets whose policy requires no evidence are left out.
    """
    now = clock.now().timestamp()
    runs: dict[tuple[str, str], list[Evidence]] = {}
    for run in snapshot.matrix.evidence:
        runs.setdefault((run.suite, run.sku), []).append(run)
    found = {}
    for name in sorted(names):
        target = snapshot.targets.get(name)
        if target is None or not target.policy.canary.require:
            continue
        policy = target.policy.canary
        suites = dict.fromkeys(one for s in policy.suites for one in policy.evidence_suites(s))
        skus = dict.fromkeys(pool.gpu.sku for pool in target.pools if pool.gpu)
        about = [run for suite in suites for sku in skus for run in runs.get((suite, sku), ())]
        required = [one for one in assess_freshness(target, about, now) if one.required]
        ages = [now - one.run.finished for one in required if one.run is not None]
        states = dict.fromkeys(_NOT_FRESH, 0)
        for one in required:
            if one.state in states:
                states[one.state] += 1
        found[name] = (max(ages, default=None), states)
    return found
