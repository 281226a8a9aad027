"""Read the state of a gate for Prometheus: snapshot, queue, evidence, drift, spool, certificate.

A scrape never waits for a stalled database. Figures that need it are read in a thread, and carry
their age.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from typing import TYPE_CHECKING, Generic, TypeVar

from msgspec import Struct
from prometheus_client.core import Metric

from compatgate import version
from compatgate.core.incidents import KINDS, LEVELS, IncidentKind
from compatgate.core.request import DriftKind
from compatgate.errors import CompatgateError
from compatgate.kit import clock, logs
from compatgate.kit.http.certificates import certificate_end
from compatgate.service.runs.evidence import assess_freshness
from compatgate.service.web.metric_table import SPECS

if TYPE_CHECKING:
    from compatgate.core.matrix import Evidence
    from compatgate.service.gate.service import Gate
    from compatgate.service.gate.snapshot import Snapshot
    from compatgate.service.runs.models import QueueState
    from compatgate.service.web.call import Settings

EVERY_SECONDS = 10.0
"""Maximum age of database figures before a scrape has them read again."""
PATIENCE_SECONDS = 0.5
"""Maximum wait of the scrape for figures."""
_READY_SECONDS = 60.0
_OTHER = "other"
T = TypeVar("T")


class Background(Generic[T]):
    """The latest result of a function that may never return; one thread at a time calls it.

    Args:
        read: the function.
    """

    def __init__(self, read: Callable[[], T]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._thread: threading.Thread | None = None
        self._found: tuple[T, float] | None = None
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
        found = self._found
        return None if found is None else (found[0], time.monotonic() - found[1])

    def _run(self) -> None:
        began = time.monotonic()
        try:
            self._found = self._read(), began
        except CompatgateError:  # counted as an error of the database; the figures grow older
            return


class StoredFigures(Struct, frozen=True):
    """Figures of the database.

    Attributes:
        drifted: number of nodes that differ from a target, by target and property.
        incidents: number that need attention, by kind and level.
    """

    queue: QueueState
    drifted: dict[tuple[str, DriftKind], int]
    incidents: dict[IncidentKind, dict[str, int]]


class StateCollector:
    """The gate's state, read at each scrape.

    Args:
        gate: whose.
        settings: of the server.
        targets: returns the names of targets that have figures of their own.
    """

    def __init__(
        self, gate: Gate, settings: Settings, targets: Callable[[], frozenset[str]]
    ) -> None:
        self._gate = gate
        self._settings = settings
        self._targets = targets
        self._stored = Background(self._read_stored)
        self._ready = Background(self._read_ready)

    def _read_ready(self) -> bool:
        try:
            self._gate.readiness.state()
        except CompatgateError:
            return False
        return True

    def _read_stored(self) -> StoredFigures:
        queue = self._gate.runs.queue_state()
        drifted: dict[tuple[str, DriftKind], int] = {}
        for group in self._gate.nodes.lately.drifted():
            key = group.target, group.what
            drifted[key] = drifted.get(key, 0) + group.nodes
        return StoredFigures(queue, drifted, self._gate.incidents.count())

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        ready = self._ready.latest()
        stored = self._stored.latest()
        usable = float(ready[0] and ready[1] < _READY_SECONDS) if ready else None
        yield SPECS["ready"].gauge(usable)
        yield from self._of_snapshot()
        yield from self._of_spool()
        yield from _of_stored(stored, self._targets())
        yield from self._of_process()

    def _of_snapshot(self) -> Iterator[Metric]:
        snapshot = self._gate.snapshots.known()
        revision, targets = (snapshot.revision, len(snapshot.targets)) if snapshot else (None, None)
        yield SPECS["matrix_revision"].gauge(revision)
        yield SPECS["targets"].gauge(targets)
        yield SPECS["snapshot_age_seconds"].gauge(self._gate.snapshot_age_s())
        yield SPECS["degraded"].gauge(float(self._gate.degraded() is not None))
        ages, states = SPECS["evidence_age_seconds"].gauge(), SPECS["evidence_not_fresh"].gauge()
        if snapshot is not None:
            for name, (age_s, numbers) in evidence_of(snapshot, self._targets()).items():
                if age_s is not None:
                    ages.add_metric([name], age_s)
                for state, number in numbers.items():
                    states.add_metric([name, state], number)
        yield from (ages, states)

    def _of_spool(self) -> Iterator[Metric]:
        spool = self._gate.log_state
        waits_s = (clock.now() - spool.oldest).total_seconds() if spool.oldest else 0.0
        yield SPECS["spool_batches"].gauge(spool.batches)
        yield SPECS["spool_bytes"].gauge(spool.used)
        yield SPECS["spool_size_bytes"].gauge(spool.size)
        yield SPECS["spool_oldest_seconds"].gauge(max(0.0, waits_s))
        yield SPECS["spool_set_aside"].gauge(spool.set_aside)

    def _of_process(self) -> Iterator[Metric]:
        facts, build = SPECS["facts_info"].gauge(), SPECS["build_info"].gauge()
        facts.add_metric([self._gate.facts.digest], 1)
        build.add_metric([version()], 1)
        yield from (facts, build)
        yield SPECS["log_lines_dropped"].counter(logs.writer.all_dropped)
        if (pair := self._settings.certificate) is not None:
            yield SPECS["certificate_end_timestamp_seconds"].gauge(certificate_end(pair))


def _of_stored(
    stored: tuple[StoredFigures, float] | None, targets: frozenset[str]
) -> Iterator[Metric]:
    found, age = stored or (None, None)
    runs, drift = SPECS["canary_runs"].gauge(), SPECS["drifted_nodes"].gauge()
    incidents = SPECS["incidents"].gauge()
    if found is not None:
        runs.add_metric(["waiting"], found.queue.waiting)
        runs.add_metric(["running"], found.queue.running)
        for what in _DRIFT_ALWAYS | {what for _, what in found.drifted}:
            numbers = {target: n for (target, one), n in found.drifted.items() if one == what}
            for name, number in _bounded(numbers, targets).items():
                drift.add_metric([name, what], number)
        for kind, level in product(KINDS, LEVELS):
            number = found.incidents.get(kind, {}).get(level, 0)
            incidents.add_metric([kind, level], number)
    yield from (runs, drift, incidents)
    oldest = found.queue.oldest_s if found else None
    yield SPECS["canary_oldest_waiting_seconds"].gauge(oldest)
    yield SPECS["stored_figures_age_seconds"].gauge(age)


_DRIFT_ALWAYS: frozenset[DriftKind] = frozenset({"driver", "gpu"})
"""Properties that have a figure of every target, also where no node differs."""


def _bounded(numbers: dict[str, int], targets: frozenset[str]) -> dict[str, int]:
    found = dict.fromkeys(targets, 0)
    for name, number in numbers.items():
        label = name if name in targets else _OTHER
        found[label] = found.get(label, 0) + number
    return found


_NOT_FRESH = ("missing", "stale", "failed")


def evidence_of(
    snapshot: Snapshot, names: Iterable[str]
) -> dict[str, tuple[float | None, dict[str, int]]]:
    """Return the age in seconds of the oldest required evidence, and what is not fresh, by target.

    Args:
        snapshot: has the evidence.
        names: of targets; those whose policy requires no evidence are left out.
    """
    now = clock.now().timestamp()
    runs = _evidence_index(snapshot)
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


def _evidence_index(snapshot: Snapshot) -> dict[tuple[str, str], list[Evidence]]:
    found: dict[tuple[str, str], list[Evidence]] = {}
    for run in snapshot.matrix.evidence:
        found.setdefault((run.suite, run.sku), []).append(run)
    return found
