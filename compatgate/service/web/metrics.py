"""Answer health, and count for Prometheus, also with several worker processes.

With ``PROMETHEUS_MULTIPROC_DIR`` set before the first import, the counters of all workers are
added up. Values that are equal in every worker (revision, facts) come from the asked worker.

Labels are bounded: rules are a fixed list, targets and namespaces beyond a number count as
``other``.
"""

from __future__ import annotations

import heapq
import logging
import os
from collections.abc import Callable
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
from compatgate.service.admission.outcome import EventResult
from compatgate.service.web.auth import admit, authenticate, peer_address, remember
from compatgate.service.web.call import METRIC_TARGETS, Service
from compatgate.service.web.figures import StateCollector
from compatgate.service.web.metric_table import PREFIX, SPECS

if TYPE_CHECKING:
    from compatgate.core.rule import Verdict
    from compatgate.kit.http.notes import RequestKind
    from compatgate.service.admission.outcome import ReviewOutcome
    from compatgate.service.gate.snapshot import Snapshot

_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0)
_REQUEST_SECONDS = (*_SECONDS, 10.0, 30.0)
_MAX_NAMESPACES = 50
_MAX_VERDICTS = 4096
_OTHER = "other"
_log = logging.getLogger("compatgate.web")


def _warn(error: OSError) -> None:
    """Log that a metric was not counted; an answer never fails for it."""
    _log.warning("a metric was not counted: %s", error)


class TargetNames:
    """The targets with figures of their own: the first by name.

    Args:
        latest: returns the current snapshot, without waiting; None: there is none yet.
        most: number of targets.
    """

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
    """The counters of an application.

    Args:
        targets: those with figures of their own.
    """

    def __init__(self, targets: TargetNames | None = None) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.targets = targets or TargetNames()
        self._registry = CollectorRegistry()
        self._state: StateCollector | None = None
        self._namespaces: set[str] = set()
        self._children: dict[tuple[Counter, tuple[str, ...]], Counter] = {}
        self._of_verdict: dict[tuple[str, str], tuple[Counter, ...]] = {}
        self._of_request: dict[tuple[str, str, int], Counter] = {}
        self._of_kind: dict[str, Histogram] = {}
        self._decisions = self._counter("decisions")
        self._by_target = self._counter("target_decisions")
        self._by_rule = self._counter("rule_decisions")
        self._requests = self._counter("http_requests")
        self._refusals = self._counter("authentication_failures")
        self._reviews = self._counter("admission_reviews")
        self._would_deny = self._counter("admission_would_deny")
        self._events = self._counter("admission_events")
        self._unmatched = self._counter("admission_unmatched")
        self._failed_admissions = self._counter("admission_failures")
        self._database_errors = self._counter("database_errors")
        self._seconds = self._histogram("decision_seconds", _SECONDS)
        self._request_seconds = self._histogram("request_seconds", _REQUEST_SECONDS)
        for kind in ("unavailable", "refused"):  # a rate needs to see the zero
            self._database_errors.labels(kind)
        for reason in get_args(AuthenticationFailure):
            self._refusals.labels(reason)
        for result in get_args(EventResult):
            self._events.labels(result)

    def _counter(self, name: str) -> Counter:
        spec = SPECS[name]
        return Counter(PREFIX + name, spec.meaning, spec.labels, registry=self._registry)

    def _histogram(self, name: str, buckets: tuple[float, ...]) -> Histogram:
        spec = SPECS[name]
        return Histogram(
            PREFIX + name, spec.meaning, spec.labels, buckets=buckets, registry=self._registry
        )

    def decided(self, verdict: Verdict, source: str, seconds: float) -> None:
        """Count a decision."""
        try:
            key = (verdict.id, source)
            found = self._of_verdict.get(key)
            if found is None:
                found = self._counters_of(verdict, source)
                if len(self._of_verdict) >= _MAX_VERDICTS:
                    self._of_verdict.clear()
                self._of_verdict[key] = found
            for counter in found:
                counter.inc()
            self._seconds.observe(seconds)
        except OSError as error:
            _warn(error)

    def _counters_of(self, verdict: Verdict, source: str) -> tuple[Counter, ...]:
        """Return the counters that a decision adds to."""
        outcome, allowed = verdict.verdict, "true" if verdict.allowed else "false"
        target = self.targets.label(verdict.target)
        return (
            self._child(self._decisions, outcome, allowed, verdict.mode, source),
            self._child(self._by_target, target, outcome, allowed),
            *(
                self._child(self._by_rule, rule, outcome, allowed)
                for rule in verdict.deciding_rules
            ),
        )

    def _child(self, counter: Counter, *labels: str) -> Counter:
        """Return the counter of these labels; quicker than the library's own search."""
        key = (counter, labels)
        found = self._children.get(key)
        if found is None:
            found = self._children[key] = counter.labels(*labels)
        return found

    def requested(self, method: str, route: str, status: int) -> None:
        """Count a request."""
        try:
            key = (method, route, status)
            found = self._of_request.get(key)
            if found is None:
                found = self._of_request[key] = self._requests.labels(method, route, str(status))
            found.inc()
        except OSError as error:
            _warn(error)

    def answered(self, kind: RequestKind, seconds: float) -> None:
        """Count the time of a request."""
        try:
            found = self._of_kind.get(kind)
            if found is None:
                found = self._of_kind[kind] = self._request_seconds.labels(kind)
            found.observe(seconds)
        except OSError as error:
            _warn(error)

    def refused(self, reason: AuthenticationFailure) -> None:
        """Count a failed authentication."""
        self._add(self._refusals, reason)

    def reviewed(self, namespace: str, outcome: ReviewOutcome) -> None:
        """Count a review that decided about GPUs."""
        try:
            self._child(self._reviews, self._namespace(namespace), outcome.result).inc()
            for target in outcome.would_deny:
                self._child(self._would_deny, self.targets.label(target)).inc()
        except OSError as error:
            _warn(error)

    def event(self, result: EventResult) -> None:
        """Count a Kubernetes event about a denial."""
        self._add(self._events, result)

    def unmatched(self, namespace: str) -> None:
        """Count a GPU workload that matches no target."""
        self._add(self._unmatched, self._namespace(namespace))

    def _namespace(self, name: str) -> str:
        """Return the label of a namespace."""
        if name not in self._namespaces:
            if len(self._namespaces) >= _MAX_NAMESPACES:
                return _OTHER
            self._namespaces.add(name)
        return name

    def admission_failed(self) -> None:
        """Count an admission request for which nothing could be decided."""
        self._add(self._failed_admissions)

    def database_failed(self, *, refused: bool) -> None:
        """Count a transaction that failed."""
        self._add(self._database_errors, "refused" if refused else "unavailable")

    def _add(self, counter: Counter, *labels: str) -> None:
        try:
            (counter.labels(*labels) if labels else counter).inc()
        except OSError as error:
            _warn(error)

    def render(self, service: Service) -> bytes:
        """Return the text that Prometheus reads; never wait for the database."""
        if self._state is None:
            self._state = StateCollector(service.gate, service.settings, self.targets.names)
        if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
            shared = CollectorRegistry()
            MultiProcessCollector(shared)  # type: ignore[no-untyped-call]
            counters = generate_latest(shared)
        else:
            counters = generate_latest(self._registry)
        state = CollectorRegistry()
        state.register(self._state)
        return counters + generate_latest(state)


ALIVE_BODY = msgspec.json.encode({"status": "alive"})


def install_health(app: Flask, service: Service) -> None:
    """Add ``/healthz``, ``/readyz`` and ``/metrics``."""

    def healthz() -> Response:
        """Answer that the process is alive."""
        return _json(ALIVE_BODY)

    def readyz() -> Response:
        """Answer whether the gate can decide and log; callers with `read` also get the inputs."""
        state = service.gate.readiness.state()
        header = request.environ.get("HTTP_AUTHORIZATION")
        sender = remember(authenticate(header, service, peer_address()))
        shown = state if sender.may("read") else {}
        if "degraded" in state:
            shown = {**shown, "degraded": state["degraded"]}
        told = {"status": "ready", **shown}
        return _json(msgspec.json.encode(told))

    def metrics() -> Response:
        """Return the counters, for callers with `read`."""
        header = request.environ.get("HTTP_AUTHORIZATION")
        caller = remember(authenticate(header, service, peer_address()))
        admit(caller, "read", targets="refused", what="GET /metrics")
        return Response(service.metrics.render(service), content_type=CONTENT_TYPE_LATEST)

    for view in (healthz, readyz, metrics):
        app.add_url_rule(
            f"/{view.__name__}",
            view.__name__,
            view,
            methods=["GET"],
            provide_automatic_options=False,
        )


def _json(body: bytes) -> Response:
    response = Response(body, content_type="application/json")
    response.headers["Cache-Control"] = "no-store"
    return response
