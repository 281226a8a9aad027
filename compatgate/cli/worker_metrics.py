"""Serve the metrics of a worker for Prometheus."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import Metric

from compatgate.errors import BadInput, quote_error
from compatgate.web.metric_table import WORKER

if TYPE_CHECKING:
    from compatgate.canary.worker import Worker


def serve_metrics(worker: Worker, host: str, port: int) -> int:
    """Serve the metrics of a worker in a thread, and return the port; 0 chooses a free one."""
    registry = CollectorRegistry()
    registry.register(WorkerCollector(worker))
    try:
        server, _ = start_http_server(port, host, registry)
    except OSError as error:
        what = f"cannot listen on {host}, port {port}: {quote_error(error)}"
        raise BadInput(what, field="--metrics-port") from None
    logging.info("metrics are at http://%s:%d/metrics", host, server.server_port)
    return server.server_port


class WorkerCollector:
    """The state of a worker, read at each scrape."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        state = self._worker.state()
        for spec in WORKER:
            yield spec.collect(state)
