"""The judge against a table of cases with known answers, directly and as the command."""

from __future__ import annotations

import json
import random
from pathlib import Path
from statistics import NormalDist
from typing import Any

import pytest
from tables import read_table

from compatgate.canary.judge.metric import judge_metric
from compatgate.canary.judge.result import Samples
from compatgate.canary.workload import MetricSpec
from compatgate.cli.main import main

CASES: list[dict[str, Any]] = read_table(Path(__file__).parent / "judge_cases.yaml")
EXITS = {"ok": 0, "improvement": 0, "regression": 1, "inconclusive": 3, "no-baseline": 3}

every_case = pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])


def values_of(side: dict[str, Any]) -> list[float]:
    """The values that a side describes; `random()` is the same on every Python."""
    if "values" in side:
        return [float(value) for value in side["values"]]
    rng = random.Random(side.get("seed", 0))
    normal = NormalDist(0, 1)
    values = []
    for place in range(side["n"]):
        draw = normal.inv_cdf(rng.random())
        value = side.get("centre", 1) * 2.718281828459045 ** (side.get("noise", 0) * draw)
        if "clocks" in side and rng.random() < side["clocks"][0]:
            value *= side["clocks"][1]
        value *= 1 + (side.get("warm", 1) - 1) * 0.5**place
        values.append(value)
    count, factor = side.get("far", (0, 1))
    for nth in range(count):
        values[nth * len(values) // count] *= factor
    return values


def samples_of(side: dict[str, Any]) -> Samples | None:
    if side.get("absent"):
        return None
    return Samples("m", side.get("unit", "ms"), (tuple(values_of(side)),))


def spec_of(case: dict[str, Any]) -> MetricSpec:
    unit = case["baseline"].get("unit", "ms")
    return MetricSpec(unit, case.get("better", "lower"), case.get("tolerance", 0.05), 10)


@every_case
def test_the_table_of_cases_holds(case: dict[str, Any]) -> None:
    judged = judge_metric(
        "m", spec_of(case), samples_of(case["baseline"]), samples_of(case["candidate"])
    )
    assert judged.outcome == case["outcome"], judged.reason
    if "aspect" in case:
        assert case["aspect"] in {a.name for a in judged.aspects if a.outcome == judged.outcome}
    assert case.get("says", "") in f"{judged.reason} | {judged.missing}"
    assert (judged.missing is not None) == (judged.outcome in ("inconclusive", "no-baseline"))


@every_case
def test_the_command_answers_the_same(
    case: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [write(tmp_path / side, case[side]) for side in ("baseline", "candidate")]
    options = ["--better", case.get("better", "lower"), "--format", "json", "--metric", "m"]
    tolerance = ["--tolerance", str(case.get("tolerance", 0.05))]
    status = main(["canary", "judge", *paths, *options, *tolerance])
    answer = json.loads(capsys.readouterr().out)
    assert status == EXITS[case["outcome"]], answer
    assert [metric["outcome"] for metric in answer["metrics"]] == [case["outcome"]]


def write(path: Path, side: dict[str, Any]) -> str:
    """A file as a program prints it: log, env, one metric a line, a check."""
    lines = ["loading", json.dumps({"type": "env", "driver": "550.54.15"})]
    if not side.get("absent"):
        unit = side.get("unit", "ms")
        found = [{"value": value} for value in values_of(side)] or [{"values": []}]
        lines += [json.dumps({"type": "metric", "name": "m", "unit": unit, **m}) for m in found]
    path.write_text("\n".join([*lines, json.dumps({"type": "check", "name": "c", "ok": True})]))
    return str(path)


def test_every_case_has_a_name_of_its_own() -> None:
    assert len({case["name"] for case in CASES}) == len(CASES)
    assert len(CASES) >= 40
