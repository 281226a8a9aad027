"""Answer health, and count for Prometheus, also with several worker processes.

With ``PROMETHEUS_MULTIPROC_DIR`` set before the first import, the counters of all workers are
added up. Values that are equal in every worker (revision, facts) come from the asked worker.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

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
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector

from compatgate import __version__
from compatgate.service.web.auth import admit, authenticate, peer_address
from compatgate.service.web.call import Service

if TYPE_CHECKING:
    from compatgate.core.rule import Verdict
    from compatgate.service.gate.service import Gate

_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0)
_log = logging.getLogger("compatgate.web")


class _LogErrors:
    """A context that logs errors of counting, so that they never stop an answer."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> bool:
        if isinstance(error, OSError):
            _log.warning("a metric was not counted: %s", error)
        return isinstance(error, OSError)


class Metrics:
    """The counters of an application."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        self._decisions = Counter(
            "compatgate_decisions",
            "Decisions, by verdict, by effect of the policy, and by the target's mode.",
            ("verdict", "allowed", "mode", "source"),
            registry=self._registry,
        )
        self._seconds = Histogram(
            "compatgate_decision_seconds",
            "Time to decide and to log the decision.",
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._requests = Counter(
            "compatgate_http_requests",
            "Requests, by method, route and status.",
            ("method", "route", "status"),
            registry=self._registry,
        )
        self._decision_counters: dict[tuple[str, bool, str, str], Counter] = {}
        self._request_counters: dict[tuple[str, str, int], Counter] = {}

    def decided(self, verdict: Verdict, source: str, seconds: float) -> None:
        """Count a decision."""
        with _LogErrors():
            self._decided(verdict, source, seconds)

    def requested(self, method: str, route: str, status: int) -> None:
        """Count a request."""
        with _LogErrors():
            self._requested(method, route, status)

    def _decided(self, verdict: Verdict, source: str, seconds: float) -> None:
        key = (verdict.verdict, verdict.allowed, verdict.mode, source)
        counter = self._decision_counters.get(key)
        if counter is None:
            allowed = "true" if verdict.allowed else "false"
            counter = self._decisions.labels(verdict.verdict, allowed, verdict.mode, source)
            self._decision_counters[key] = counter
        counter.inc()
        self._seconds.observe(seconds)

    def _requested(self, method: str, route: str, status: int) -> None:
        key = (method, route, status)
        counter = self._request_counters.get(key)
        if counter is None:
            counter = self._requests.labels(method, route, str(status))
            self._request_counters[key] = counter
        counter.inc()

    def render(self, gate: Gate) -> bytes:
        """Return the text that Prometheus reads."""
        if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
            shared = CollectorRegistry()
            MultiProcessCollector(shared)  # type: ignore[no-untyped-call]
            counters = generate_latest(shared)
        else:
            counters = generate_latest(self._registry)
        state = CollectorRegistry()
        state.register(_StateCollector(gate))
        return counters + generate_latest(state)


class _StateCollector:
    """The gate's revision and facts, read at each scrape."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        gate = self._gate
        snapshot = gate.snapshots.known() or gate.snapshot()
        yield GaugeMetricFamily(
            "compatgate_matrix_revision", "Revision of the matrix.", snapshot.revision
        )
        yield GaugeMetricFamily("compatgate_targets", "Targets.", len(snapshot.targets))
        yield GaugeMetricFamily(
            "compatgate_degraded",
            "1 while the gate decides without its database.",
            int(gate.degraded() is not None),
        )
        yield GaugeMetricFamily(
            "compatgate_snapshot_age_seconds",
            "Time since the database last confirmed the snapshot.",
            gate.snapshot_age_s(),
        )
        facts = GaugeMetricFamily(
            "compatgate_facts_info", "Digest of the vendors' facts.", labels=["digest"]
        )
        facts.add_metric([self._gate.facts.digest], 1)
        yield facts
        build = GaugeMetricFamily("compatgate_build_info", "Version.", labels=["version"])
        build.add_metric([__version__], 1)
        yield build


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
        sender = authenticate(header, service, peer_address())
        shown = state if sender.may("read") else {}
        if "degraded" in state:
            shown = {**shown, "degraded": state["degraded"]}
        told = {"status": "ready", **shown}
        return _json(msgspec.json.encode(told))

    def metrics() -> Response:
        """Return the counters, for callers with `read`."""
        header = request.environ.get("HTTP_AUTHORIZATION")
        caller = authenticate(header, service, peer_address())
        admit(caller, "read", targets="refused", what="GET /metrics")
        return Response(service.metrics.render(service.gate), content_type=CONTENT_TYPE_LATEST)

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
