"""Answer health, and count for Prometheus, also with several worker processes.

With ``PROMETHEUS_MULTIPROC_DIR`` set before the first import, the counters of all workers are
added up. Labels are bounded: targets and namespaces beyond a number count as ``other``.
"""

from __future__ import annotations

import heapq
import logging
import os
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, get_args

import msgspec
from flask import Flask, Response, request
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector

from compatgate.errors import AuthenticationFailure
from compatgate.kit.http.limits import peer_address
from compatgate.kit.http.replies import Reply
from compatgate.web.auth import admit, authenticate, remember
from compatgate.web.figures import StateCollector
from compatgate.web.metric_table import GATE, PREFIX
from compatgate.web.page_views import add_route, to_response
from compatgate.web.service import METRIC_TARGETS, Service

if TYPE_CHECKING:
    from compatgate.core.rule import Verdict
    from compatgate.kit.principal import Principal
    from compatgate.kit.tracing import RequestKind
    from compatgate.service.cluster.schemas import ReviewOutcome
    from compatgate.service.matrix.snapshots.snapshot import Snapshot

_SHORT = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0)
_SECONDS = {"decision_seconds": _SHORT, "request_seconds": (*_SHORT, 10.0, 30.0)}
"""Upper bounds of the buckets of histograms."""
_MAX_NAMESPACES = 50
_MAX_CHILDREN = 4096
_OTHER = "other"
_log = logging.getLogger("compatgate.web")
ALIVE_BODY = msgspec.json.encode({"status": "alive"})


def _warn(error: OSError) -> None:
    """Log that a metric was not counted; an answer never fails for it."""
    _log.warning("a metric was not counted: %s", error)


class TargetNames:
    """The targets with figures of their own: the first by name."""

    def __init__(
        self, latest: Callable[[], Snapshot | None] = lambda: None, most: int = METRIC_TARGETS
    ) -> None:
        self._latest = latest
        self._most = most
        self._seen: Snapshot | None = None
        self._names: frozenset[str] = frozenset()

    def names(self) -> frozenset[str]:
        """Return the names of these targets."""
        snapshot = self._latest()
        if snapshot is not None and snapshot is not self._seen:
            self._names = frozenset(heapq.nsmallest(self._most, snapshot.targets))
            self._seen = snapshot
        return self._names

    def label(self, target: str | None) -> str:
        """Return the label of a target; ``none``: the question named a pool alone."""
        if not target:
            return "none"
        return target if target in self.names() else _OTHER


class Metrics:
    """The counters of an application; an event that cannot be counted is logged, and no error."""

    def __init__(self, targets: TargetNames | None = None) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.targets = targets or TargetNames()
        self._registry = registry = CollectorRegistry()
        self._state: StateCollector | None = None
        self._namespaces: set[str] = set()
        self._of_verdict: dict[tuple[str, str], tuple[Counter, ...]] = {}
        self._counters: dict[str, Counter] = {}
        self._seconds: dict[str, Histogram] = {}
        for spec in (spec for spec in GATE if spec.read is None):
            about = (PREFIX + spec.name, spec.meaning, spec.labels)
            if spec.type == "counter":
                self._counters[spec.name] = Counter(*about, registry=registry)
            else:
                buckets = _SECONDS[spec.name]
                self._seconds[spec.name] = Histogram(*about, buckets=buckets, registry=registry)
        # The library's own search for the child of some labels takes longer than counting.
        self._child = lru_cache(_MAX_CHILDREN)(
            lambda name, *labels: self._counters[name].labels(*labels)
        )
        self._kind = lru_cache(_MAX_CHILDREN)(self._seconds["request_seconds"].labels)
        for kind in ("unavailable", "refused"):  # a rate needs to see the zero
            self._child("database_errors", kind)
        for reason in get_args(AuthenticationFailure):
            self._child("authentication_failures", reason)

    def decided(self, verdict: Verdict, source: str, seconds: float) -> None:
        """Count a decision."""
        try:
            key = (verdict.id, source)
            counters = self._of_verdict.get(key)
            if counters is None:
                if len(self._of_verdict) >= _MAX_CHILDREN:
                    self._of_verdict.clear()
                effect = (verdict.verdict, "true" if verdict.allowed else "false")
                target = self.targets.label(verdict.target)
                counters = self._of_verdict[key] = (
                    self._child("decisions", *effect, verdict.mode, source),
                    self._child("target_decisions", target, *effect),
                    *(
                        self._child("rule_decisions", one, *effect)
                        for one in verdict.deciding_rules
                    ),
                )
            for counter in counters:
                counter.inc()
            self._seconds["decision_seconds"].observe(seconds)
        except OSError as error:
            _warn(error)

    def requested(self, method: str, route: str, status: int) -> None:
        """Count a request."""
        self._add("http_requests", method, route, str(status))

    def answered(self, kind: RequestKind, seconds: float) -> None:
        """Count the time of a request."""
        try:
            self._kind(kind).observe(seconds)
        except OSError as error:
            _warn(error)

    def refused(self, reason: AuthenticationFailure) -> None:
        """Count a failed authentication."""
        self._add("authentication_failures", reason)

    def reviewed(self, namespace: str, outcome: ReviewOutcome) -> None:
        """Count a review that decided about GPUs."""
        self._add("admission_reviews", self._namespace(namespace), outcome.result)
        for target in outcome.would_deny:
            self._add("admission_would_deny", self.targets.label(target))

    def unmatched(self, namespace: str) -> None:
        """Count a GPU workload that matches no target."""
        self._add("admission_unmatched", self._namespace(namespace))

    def _namespace(self, name: str) -> str:
        if name not in self._namespaces:
            if len(self._namespaces) >= _MAX_NAMESPACES:
                return _OTHER
            self._namespaces.add(name)
        return name

    def admission_failed(self) -> None:
        """Count an admission request for which nothing could be decided."""
        self._add("admission_failures")

    def database_failed(self, *, refused: bool) -> None:
        """Count a transaction that failed."""
        self._add("database_errors", "refused" if refused else "unavailable")

    def _add(self, name: str, *labels: str) -> None:
        try:
            (self._child(name, *labels) if labels else self._counters[name]).inc()
        except OSError as error:
            _warn(error)

    def render(self, service: Service) -> bytes:
        """Return the text that Prometheus reads; never wait for the database."""
        if self._state is None:
            self._state = StateCollector(service.rooms, service.settings, self.targets.names)
        if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
            shared = CollectorRegistry()
            MultiProcessCollector(shared)  # type: ignore[no-untyped-call]
            counters = generate_latest(shared)
        else:
            counters = generate_latest(self._registry)
        state = CollectorRegistry()
        state.register(self._state)
        return counters + generate_latest(state)


def install_health(app: Flask, service: Service) -> None:
    """Add ``/healthz``, ``/readyz`` and ``/metrics``."""

    def healthz() -> Response:
        return to_response(Reply(ALIVE_BODY, secret=True))

    def caller() -> Principal:
        header = request.environ.get("HTTP_AUTHORIZATION")
        return remember(authenticate(header, service, peer_address()))

    def readyz() -> Response:
        """Answer whether the gate can decide and log; callers with `read` also get the inputs."""
        state, sender = service.gate.readiness.state(), caller()
        public = state if sender.may("read") else {k: state[k] for k in ("degraded",) if k in state}
        return to_response(Reply({"status": "ready", **public}, secret=True))

    def metrics() -> Response:
        """Return the counters, for callers with `read`."""
        admit(caller(), "read", targets="refused", what="GET /metrics")
        return Response(service.metrics.render(service), content_type=CONTENT_TYPE_LATEST)

    for view in (healthz, readyz, metrics):
        add_route(app, f"/{view.__name__}", view.__name__, view)
