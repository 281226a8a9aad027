"""List every metric: name, type, labels and meaning.

The collectors, the reference page and the tests of alerts and dashboard read this table.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

PREFIX = "compatgate_"
_ENDINGS = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_count", "_sum")}


class MetricSpec(Struct, frozen=True):
    """A metric.

    Attributes:
        name: without `PREFIX`, and without the ``_total`` of a counter.
        labels: names, in order.
        meaning: one or two sentences; text of the reference.
        stored: read from the database, in the background.
    """

    name: str
    type: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    meaning: str
    stored: bool = False

    @property
    def exported(self) -> tuple[str, ...]:
        """Return the names of its samples."""
        endings = {
            "counter": ("_total",),
            "gauge": ("",),
            "histogram": ("_bucket", "_count", "_sum"),
        }
        return tuple(f"{PREFIX}{self.name}{end}" for end in endings[self.type])

    def gauge(self, value: float | None = None) -> GaugeMetricFamily:
        """Return the gauge, with one sample if it has no labels and the value is known."""
        made = GaugeMetricFamily(PREFIX + self.name, self.meaning, labels=self.labels)
        if value is not None:
            made.add_metric([], value)
        return made

    def counter(self, value: float | None = None) -> CounterMetricFamily:
        """Return the counter, as `gauge`."""
        made = CounterMetricFamily(PREFIX + self.name, self.meaning, labels=self.labels)
        if value is not None:
            made.add_metric([], value)
        return made


GATE = (
    MetricSpec(
        "decisions",
        "counter",
        ("verdict", "allowed", "mode", "source"),
        "Decisions, by verdict, by effect of the policy, by the target's mode, and by who asked.",
    ),
    MetricSpec(
        "target_decisions",
        "counter",
        ("target", "verdict", "allowed"),
        "Decisions by target; `none`: questions about a pool; `other`: targets beyond the limit.",
    ),
    MetricSpec(
        "rule_decisions",
        "counter",
        ("rule", "verdict", "allowed"),
        "Decisions by deciding rule: a rule with the outcome of the verdict.",
    ),
    MetricSpec("decision_seconds", "histogram", (), "Time to decide and to log the decision."),
    MetricSpec("http_requests", "counter", ("method", "route", "status"), "Requests."),
    MetricSpec(
        "request_seconds",
        "histogram",
        ("kind",),
        "Time from a request's headers to the end of its answer: `question`, `hook`, `api`,"
        " `page`, `health`.",
    ),
    MetricSpec(
        "authentication_failures",
        "counter",
        ("reason",),
        "Requests without a valid token where one is needed; `missing`: without any token.",
    ),
    MetricSpec(
        "admission_reviews",
        "counter",
        ("namespace", "result"),
        "Kubernetes objects with GPUs, by the worst result of their containers: `allowed`,"
        " `warned`, `exempt`, `unmatched`, `would_deny` (in mode `enforce`), `denied`, `failed`;"
        " dry runs do not count; namespace `other`: those beyond the first 50.",
    ),
    MetricSpec(
        "admission_would_deny",
        "counter",
        ("target",),
        "GPU containers that a target in mode `warn` or `audit` admits and would deny in mode"
        " `enforce`; `other`: targets beyond the limit.",
    ),
    MetricSpec(
        "admission_events",
        "counter",
        ("result",),
        "Kubernetes events about denials: `written`, `repeated` (the count of an"
        " existing event was raised), `dropped` (too many wait), `failed` (the cluster refused).",
    ),
    MetricSpec(
        "admission_unmatched",
        "counter",
        ("namespace",),
        "GPU workloads that match no target; `other`: namespaces beyond the first 50.",
    ),
    MetricSpec(
        "admission_failures",
        "counter",
        (),
        "Admission requests without a decision.",
    ),
    MetricSpec(
        "database_errors",
        "counter",
        ("kind",),
        "Failed transactions; `refused`: the database answers, and refuses the statement.",
    ),
    MetricSpec(
        "ready", "gauge", (), "1: the latest check found that the gate decides and records."
    ),
    MetricSpec(
        "degraded",
        "gauge",
        (),
        "1: the gate decides without its database; a far gate: without its central gate.",
    ),
    MetricSpec(
        "snapshot_age_seconds",
        "gauge",
        (),
        "Time since the database, or the central gate, last confirmed the snapshot.",
    ),
    MetricSpec("matrix_revision", "gauge", (), "Revision of the matrix."),
    MetricSpec("targets", "gauge", (), "Targets of the matrix."),
    MetricSpec(
        "evidence_age_seconds",
        "gauge",
        ("target",),
        "Age of the oldest evidence that the policy of a target requires.",
    ),
    MetricSpec(
        "evidence_not_fresh",
        "gauge",
        ("target", "state"),
        "Required suites, for each kind of pool, whose evidence is `missing`, `stale` or `failed`.",
    ),
    MetricSpec("spool_batches", "gauge", (), "Batches of decisions that wait for delivery."),
    MetricSpec("spool_bytes", "gauge", (), "Bytes of decisions that wait for delivery."),
    MetricSpec("spool_size_bytes", "gauge", (), "Size of the spool; 0: no spool."),
    MetricSpec(
        "spool_oldest_seconds", "gauge", (), "Age of the oldest decision that waits; 0: none does."
    ),
    MetricSpec(
        "spool_set_aside",
        "gauge",
        (),
        "Spools that cannot be delivered: the log has another batch of their writer.",
    ),
    MetricSpec(
        "canary_runs", "gauge", ("state",), "Canary runs, `waiting` or `running`.", stored=True
    ),
    MetricSpec(
        "canary_oldest_waiting_seconds",
        "gauge",
        (),
        "Age of the oldest canary run that waits; 0: none does.",
        stored=True,
    ),
    MetricSpec(
        "drifted_nodes",
        "gauge",
        ("target", "what"),
        "Nodes that differ from their target in a property, at most a minute old.",
        stored=True,
    ),
    MetricSpec(
        "incidents",
        "gauge",
        ("kind", "level"),
        "Incidents that are open and not snoozed; level: `fail`, `warn` or `info`.",
        stored=True,
    ),
    MetricSpec(
        "stored_figures_age_seconds", "gauge", (), "Age of the metrics that the database keeps."
    ),
    MetricSpec(
        "certificate_end_timestamp_seconds",
        "gauge",
        (),
        "Unix time at which the server's certificate ends; 0: it has ended. Only with TLS.",
    ),
    MetricSpec(
        "log_lines_dropped",
        "counter",
        (),
        "Log lines of this process that were dropped: their reader was too slow.",
    ),
    MetricSpec("facts_info", "gauge", ("digest",), "1; digest of the vendors' facts."),
    MetricSpec("build_info", "gauge", ("version",), "1; version of compatgate."),
)
WORKER = (
    MetricSpec("worker_running", "gauge", (), "Canary runs in progress."),
    MetricSpec("worker_slots", "gauge", (), "Canary runs that the worker carries out at once."),
    MetricSpec(
        "worker_hosts", "gauge", ("state",), "Staging hosts that are `reachable` or `away`."
    ),
    MetricSpec(
        "worker_runs",
        "counter",
        ("result",),
        "Runs that the worker is done with: `ended`, `host_failed` (back in the queue), `defect`.",
    ),
    MetricSpec(
        "worker_queue_answered_timestamp_seconds",
        "gauge",
        (),
        "Unix time at which the queue last answered the worker.",
    ),
    MetricSpec("build_info", "gauge", ("version",), "1; version of compatgate."),
)
SPECS = {spec.name: spec for spec in (*GATE, *WORKER)}
