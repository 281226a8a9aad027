"""A judgement in sentences.

`canary show` tells under which conditions a metric was measured, where that is known.

What was asked for beside what was measured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from compatgate.canary.judge.metric import judge_metric
from compatgate.canary.judge.result import Samples
from compatgate.canary.run import Conditions, Device, Env
from compatgate.canary.workload import MetricSpec
from compatgate.cli.canary import runs as cli_runs
from compatgate.core.facts.nvidia import Gpus
from compatgate.service.runs.queue.models import RunRow
from compatgate.web.pages.run_comparison import compare_parts
from compatgate.web.pages.run_inspection import explain_judgement, format_change

BASE = [100 + (i % 7) * 0.2 for i in range(40)]


def explained(factor: float, better: Any = "lower", baseline: bool = True, n: int = 40) -> str:
    spec = MetricSpec("ms", better, 0.05)
    before = Samples("step", "ms", (tuple(BASE),)) if baseline else None
    after = Samples("step", "ms", (tuple(value * factor for value in BASE[:n]),))
    return "\n".join(explain_judgement(judge_metric("step", spec, before, after)))


def test_a_regression_says_what_changed_and_how_sure_that_is() -> None:
    text = explained(1.12)
    assert "Lower is better; a change of 5 % counts." in text
    assert "12 % higher" in text
    assert "With 98 % confidence the change lies between" in text
    assert "all of it beyond the tolerance" in text


@pytest.mark.parametrize(
    ("factor", "better", "where"),
    [
        (1.0, "lower", "all of it within"),
        (0.8, "lower", "all of it within"),
        (0.8, "higher", "all of it beyond"),
        (0.8, "either", "all of it beyond"),
        (1.2, "either", "all of it beyond"),
        (1.05, "lower", "partly beyond"),
    ],
)
def test_the_side_that_counts_is_the_metrics_own(factor: float, better: str, where: str) -> None:
    assert f"{where} the tolerance" in explained(factor, better)


def test_no_change_is_called_so() -> None:
    assert ": no change." in explained(1.0)


def test_without_a_baseline_it_says_what_would_settle_it() -> None:
    assert "To decide: a baseline, learned from accepted runs." in explained(1.0, baseline=False)


def test_too_few_values_say_what_is_missing() -> None:
    assert "To decide" in explained(1.0, n=3)


@pytest.mark.parametrize(
    ("share", "text"), [(0.121, "+12.1 %"), (-0.05, "-5.0 %"), (0.0, "+0.0 %"), (11.0, "x 12")]
)
def test_changes_are_written_as_people_do(share: float, text: str) -> None:
    assert format_change(share) == text


def test_conditions_are_told_where_a_program_recorded_them() -> None:
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
    (line,) = cli_runs._list_figures(steps)
    said = "gemm-0 fp16: SM clock 1980 MHz, 61 C, held by power limit in 1 of 1 values"
    assert line.strip() == said


def test_values_settled_only_where_all_lines_say_so() -> None:
    for one, other, both in (
        (True, True, True),
        (True, False, False),
        (None, True, True),
        (None, None, None),
        (False, None, False),
    ):
        assert Conditions(settled=one).joined(Conditions(settled=other)).settled is both


ENV = Env(
    driver="535.183.01",
    gpus=(Device("NVIDIA A100-SXM4-80GB"),),
    versions={"cuda": "12.4.1", "cudnn": "9.1.0.70", "torch": "2.4.1+cu124"},
)


@pytest.fixture
def states(run_row: Callable[..., RunRow], gpus: Gpus) -> Callable[..., dict[str, str]]:
    def of(*envs: Env, **fields: Any) -> dict[str, str]:
        return {one.name: one.state for one in compare_parts(run_row(**fields), envs, gpus)}

    return of


def test_a_version_that_says_less_is_the_same(states: Any) -> None:
    assert states(ENV) == {
        "gpu": "same",
        "driver": "same",
        "cuda": "same",
        "cudnn": "same",
        "torch": "not asked",
    }


def test_another_release_differs(states: Any) -> None:
    other = replace(ENV, versions={"cuda": "12.5", "cudnn": "9.1.0"}, driver="550.54.15")
    found = states(other)
    assert (found["cuda"], found["cudnn"], found["driver"]) == ("differs", "same", "differs")


def test_what_nobody_measured_is_not_the_same(states: Any) -> None:
    assert states(Env())["cuda"] == "not measured"
    assert states()["gpu"] == "not measured"


def test_another_gpu_differs(states: Any) -> None:
    assert states(replace(ENV, gpus=(Device("NVIDIA L4"),)))["gpu"] == "differs"


def test_steps_that_disagree_are_shown_with_all_that_they_say(
    run_row: Callable[..., RunRow], gpus: Gpus
) -> None:
    other = replace(ENV, versions={"cuda": "12.5", "torch": "2.5.0"})
    found = {one.name: one for one in compare_parts(run_row(), [ENV, other], gpus)}
    assert found["cuda"].measured == ("12.4.1", "12.5")
    assert found["cuda"].state == "differs"
    assert found["torch"].state == "differs"


def test_names_and_versions_that_are_none_are_shown_as_they_came(states: Any) -> None:
    odd = Env(versions={"<b>odd</b>": "?", "cuda": "twelve"}, gpus=(Device("Voodoo 2"),))
    found = states(odd)
    assert found["<b>odd</b>"] == "not asked"
    assert found["cuda"] == "differs"
    assert found["gpu"] == "differs"
