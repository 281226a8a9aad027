"""A worker shows Prometheus what it does."""

from __future__ import annotations

import socket
from urllib.request import urlopen

import pytest

from compatgate.canary.worker import WorkerState
from compatgate.cli.worker_metrics import serve_metrics
from compatgate.errors import BadInput


class Busy:
    """A worker in the middle of its work."""

    def state(self) -> WorkerState:
        done = {"ended": 7, "host_failed": 1, "defect": 0}
        return WorkerState(2, 4, 3, 1, done, 1800000000.0)  # type: ignore[arg-type]


def test_the_state_of_a_worker_is_served() -> None:
    port = serve_metrics(Busy(), "127.0.0.1", 0)  # type: ignore[arg-type]
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    assert {
        "compatgate_worker_running 2.0",
        "compatgate_worker_slots 4.0",
        'compatgate_worker_hosts{state="away"} 1.0',
        'compatgate_worker_runs_total{result="ended"} 7.0',
        'compatgate_worker_runs_total{result="host_failed"} 1.0',
        "compatgate_worker_queue_answered_timestamp_seconds 1.8e+09",
    } <= set(lines)


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(BadInput) as refused:
        serve_metrics(Busy(), "127.0.0.1", taken.getsockname()[1])  # type: ignore[arg-type]
    assert "Address already in use" in refused.value.detail
