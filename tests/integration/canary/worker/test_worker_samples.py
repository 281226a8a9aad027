"""What a container measured becomes a sample, and a gate that has seen nothing starts from it."""

from __future__ import annotations

from pathlib import Path

import pytest
from engines import Engine
from staging import DRIVER, GOOD, GPU, Staging

from compatgate.documents.sources import Source
from compatgate.service.baselines.exchange import collect_samples
from compatgate.service.gate.service import Gate

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
METRIC = """\
seeds = [0, 1]

[metrics.speed]
unit = "GB/s"
better = "higher"
"""
MEASURES = (
    GOOD
    + """\
say.metric("speed", "GB/s", [800 + i * 7 % 11 / 10 for i in range(30)], warmup=[700.0])
"""
)


def test_a_fresh_gate_starts_from_what_a_container_measured(
    staging: Staging, gpu_engine: Engine, tmp_path: Path
) -> None:
    staging.workload("made", MEASURES, more=METRIC)
    run = staging.submit("made")
    staging.work()
    assert staging.run(run).state == "inconclusive", staging.run(run).reason
    taken = collect_samples(staging.gate.runs, staging.gate.facts, run)
    assert taken["refused"] == []
    assert [sample["step"] for sample in taken["samples"]] == ["made-0", "made-1"]
    assert '"executor":"docker","development":false' in taken["samples"][0]["text"]

    fresh = Gate.open(str(tmp_path / "fresh.db"), overlays=[])
    fresh.runs.catalogue = staging.library
    files = [Source(sample["name"], sample["text"]) for sample in taken["samples"]]
    (row,) = fresh.exchange.take(files, by="mara").proposed
    assert (row.sku, row.family, row.metric) == (GPU, "cuda-12.4", "speed")
    runs = fresh.baselines.show(row.id).baseline.runs
    assert [kept.run for kept in runs] == [f"{run}:made-0", f"{run}:made-1"]
    assert runs[0].sample is not None
    assert (runs[0].sample.driver, runs[0].sample.versions) == (DRIVER, {"cuda": "12.4.1"})
    fresh.close()


def test_a_run_whose_check_failed_gives_none(staging: Staging, gpu_engine: Engine) -> None:
    staging.workload("made", MEASURES.replace("True", "False"), more=METRIC)
    run = staging.submit("made")
    staging.work()
    taken = collect_samples(staging.gate.runs, staging.gate.facts, run)
    assert taken["samples"] == []
    assert "the run ended failed: made-0: check right failed" in taken["refused"][0]["reason"]
