"""Runs as rows, with no database behind them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from compatgate.service.runs.queue.models import RunRow

WHEN = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.fixture
def run_row() -> Callable[..., RunRow]:
    """Makes runs of one stack on an A100 that have ended."""

    def make(**fields: Any) -> RunRow:
        stack = {"cuda": "12.4", "cudnn": "9.1.0"}
        values: dict[str, Any] = dict.fromkeys(RunRow.__struct_fields__)
        values |= {"seq": 1, "id": "run_1", "suite": "dl-core", "state": "passed", "stack": stack}
        values |= {"gpu": "A100-SXM4-80GB", "driver": "535.183.01", "gpus": 1, "priority": 0}
        values |= {"purpose": "request", "attempts": 1, "max_attempts": 3, "doing": ""}
        values |= {"reason": "", "asked_by": "mara", "created_at": WHEN, "target": "prod-a100"}
        return RunRow(**(values | fields))

    return make
