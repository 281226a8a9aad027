"""`canary show` tells under which conditions a metric was measured, where that is known."""

from __future__ import annotations

from typing import Any

import pytest

from compatgate.canary.run import Conditions
from compatgate.service.runs import cli_show


def test_conditions_are_told_where_a_program_recorded_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def metric(name: str, **conditions: Any) -> dict[str, Any]:
        return {"name": name, "values": [1.0], "conditions": conditions or None}

    steps = [
        {"name": "hello-0", "report": None},
        {"name": "old-0", "report": {"metrics": [{"name": "fp16", "values": [1.0]}]}},
        {
            "name": "gemm-0",
            "report": {
                "metrics": [
                    metric("fp16", sm_mhz=[1980.0], celsius=[61.0], limits=[["power limit"]]),
                    metric("bf16"),
                    metric("tf32", settled=True),
                ]
            },
        },
    ]
    cli_show._print_conditions(steps)
    said = "gemm-0 fp16: SM clock 1980 MHz, 61 C, held by power limit in 1 of 1 values"
    assert capsys.readouterr().out.strip() == said


def test_values_settled_only_where_all_lines_say_so() -> None:
    for one, other, both in (
        (True, True, True),
        (True, False, False),
        (None, True, True),
        (None, None, None),
        (False, None, False),
    ):
        assert Conditions(settled=one).joined(Conditions(settled=other)).settled is both
