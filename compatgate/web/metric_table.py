"""List every metric: name, labels, meaning, and how its value is read from the state.

The collectors, the reference page and the tests of alerts and dashboard read this table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from msgspec import Struct
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from compatgate import version
from compatgate.kit import logs
from compatgate.kit.http.certificates import certificate_end

PREFIX = "compatgate_"
_ENDINGS = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_count", "_sum")}
Reading = float | None | Mapping[tuple[str, ...], float]
"""A value, or values by labels; None: it is not known."""


class MetricSpec(Struct, frozen=True):
    """A metric; its name is without `PREFIX`, and without the ``_total`` of a counter.

    ``read`` reads the value from the state at a scrape; None: events are counted instead.
    ``stored``: the database has it, which is read in the background.
    """

    name: str
    type: Literal["counter", "gauge", "histogram"]
    meaning: str
    labels: tuple[str, ...] = ()
    read: Callable[[Any], Reading] | None = None
    stored: bool = False

    @property
    def exported(self) -> tuple[str, ...]:
        """Return the names of its samples."""
        return tuple(f"{PREFIX}{self.name}{end}" for end in _ENDINGS[self.type])

    def collect(self, state: object) -> Metric:
        """Return the metric with its values."""
        family = CounterMetricFamily if self.type == "counter" else GaugeMetricFamily
        metric = family(PREFIX + self.name, self.meaning, labels=self.labels)
        reading = self.read(state) if self.read is not None else None
        if isinstance(reading, Mapping):
            for labels, value in reading.items():
                metric.add_metric(labels, value)
        elif reading is not None:
            metric.add_metric([], reading)
        return metric


def _count(name: str, meaning: str, *labels: str) -> MetricSpec:
    return MetricSpec(name, "counter", meaning, labels)


def _gauge(
    name: str, read: Callable[[Any], Reading], meaning: str, *labels: str, stored: bool = False
) -> MetricSpec:
    return MetricSpec(name, "gauge", meaning, labels, read, stored)


_BUILD = _gauge(
    "build_info", lambda state: {(version(),): 1}, "1; version of compatgate.", "version"
)
GATE = (
    _count(
        "decisions",
        "Decisions, by verdict, by effect of the policy, by the target's mode, and by who asked.",
        *("verdict", "allowed", "mode", "source"),
    ),
    _count(
        "target_decisions",
        "Decisions by target; `none`: questions about a pool; `other`: targets beyond the limit.",
        *("target", "verdict", "allowed"),
    ),
    _count(
        "rule_decisions",
        "Decisions by deciding rule: a rule with the outcome of the verdict.",
        *("rule", "verdict", "allowed"),
    ),
    MetricSpec("decision_seconds", "histogram", "Time to decide and to log the decision."),
    _count("http_requests", "Requests.", "method", "route", "status"),
    MetricSpec(
        "request_seconds",
        "histogram",
        "Time from a request's headers to the end of its answer: `question`, `hook`, `api`,"
        " `page`, `health`.",
        ("kind",),
    ),
    _count(
        "authentication_failures",
        "Requests without a valid token where one is needed; `missing`: without any token.",
        "reason",
    ),
    _count(
        "admission_reviews",
        "Kubernetes objects with GPUs, by the worst result of their containers: `allowed`,"
        " `warned`, `exempt`, `unmatched`, `would_deny` (in mode `enforce`), `denied`, `failed`;"
        " dry runs do not count; namespace `other`: those beyond the first 50.",
        *("namespace", "result"),
    ),
    _count(
        "admission_would_deny",
        "GPU containers that a target in mode `warn` or `audit` admits and would deny in mode"
        " `enforce`; `other`: targets beyond the limit.",
        "target",
    ),
    _count(
        "admission_unmatched",
        "GPU workloads that match no target; `other`: namespaces beyond the first 50.",
        "namespace",
    ),
    _count("admission_failures", "Admission requests without a decision."),
    _count(
        "database_errors",
        "Failed transactions; `refused`: the database answers, and refuses the statement.",
        "kind",
    ),
    _gauge(
        "ready",
        lambda state: state.ready,
        "1: the latest check found that the gate decides and records.",
    ),
    _gauge(
        "degraded",
        lambda state: state.gate.degraded() is not None,
        "1: the gate decides without its database; a far gate: without its central gate.",
    ),
    _gauge(
        "snapshot_age_seconds",
        lambda state: state.gate.snapshot_age_s(),
        "Time since the database, or the central gate, last confirmed the snapshot.",
    ),
    _gauge(
        "matrix_revision",
        lambda state: state.snapshot and state.snapshot.revision,
        "Revision of the matrix.",
    ),
    _gauge(
        "targets",
        lambda state: state.snapshot and len(state.snapshot.targets),
        "Targets of the matrix.",
    ),
    _gauge(
        "evidence_age_seconds",
        lambda state: state.evidence_ages,
        "Age of the oldest evidence that the policy of a target requires.",
        "target",
    ),
    _gauge(
        "evidence_not_fresh",
        lambda state: state.evidence_not_fresh,
        "Required suites, for each kind of pool, whose evidence is `missing`, `stale` or `failed`.",
        *("target", "state"),
    ),
    _gauge(
        "spool_batches",
        lambda state: state.spool.batches,
        "Batches of decisions that wait for delivery.",
    ),
    _gauge(
        "spool_bytes", lambda state: state.spool.used, "Bytes of decisions that wait for delivery."
    ),
    _gauge("spool_size_bytes", lambda state: state.spool.size, "Size of the spool; 0: no spool."),
    _gauge(
        "spool_oldest_seconds",
        lambda state: state.spool_oldest_s,
        "Age of the oldest decision that waits; 0: none does.",
    ),
    _gauge(
        "spool_set_aside",
        lambda state: state.spool.set_aside,
        "Spools that cannot be delivered: the log has another batch of their writer.",
    ),
    _gauge(
        "canary_runs",
        lambda state: state.stored and state.stored.runs,
        "Canary runs, `waiting` or `running`.",
        "state",
        stored=True,
    ),
    _gauge(
        "canary_oldest_waiting_seconds",
        lambda state: state.stored and state.stored.oldest_run_s,
        "Age of the oldest canary run that waits; 0: none does.",
        stored=True,
    ),
    _gauge(
        "drifted_nodes",
        lambda state: state.drifted,
        "Nodes that differ from their target in a property, at most a minute old.",
        *("target", "what"),
        stored=True,
    ),
    _gauge(
        "incidents",
        lambda state: state.stored and state.stored.incidents,
        "Incidents that are open and not snoozed; level: `fail`, `warn` or `info`.",
        *("kind", "level"),
        stored=True,
    ),
    _gauge(
        "stored_figures_age_seconds",
        lambda state: state.stored_age_s,
        "Age of the metrics that the database keeps.",
    ),
    _gauge(
        "certificate_end_timestamp_seconds",
        lambda state: state.certificate and certificate_end(state.certificate),
        "Unix time at which the server's certificate ends; 0: it has ended. Only with TLS.",
    ),
    MetricSpec(
        "log_lines_dropped",
        "counter",
        "Log lines of this process that were dropped: their reader was too slow.",
        read=lambda state: logs.writer.all_dropped,
    ),
    _gauge(
        "facts_info",
        lambda state: {(state.gate.facts.digest,): 1},
        "1; digest of the vendors' facts.",
        "digest",
    ),
    _BUILD,
)
WORKER = (
    _gauge("worker_running", lambda state: state.running, "Canary runs in progress."),
    _gauge(
        "worker_slots", lambda state: state.most, "Canary runs that the worker carries out at once."
    ),
    _gauge(
        "worker_hosts",
        lambda state: {("reachable",): state.reachable, ("away",): state.away},
        "Staging hosts that are `reachable` or `away`.",
        "state",
    ),
    MetricSpec(
        "worker_runs",
        "counter",
        "Runs that the worker is done with: `ended`, `host_failed` (back in the queue), `defect`.",
        ("result",),
        lambda state: {(result,): number for result, number in state.done.items()},
    ),
    _gauge(
        "worker_queue_answered_timestamp_seconds",
        lambda state: state.polled,
        "Unix time at which the queue last answered the worker.",
    ),
    _BUILD,
)
