"""What a container measured becomes a sample."""

from __future__ import annotations

import pytest
from engines import Engine
from staging import GOOD, Staging

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


def test_each_step_of_a_container_becomes_a_sample(staging: Staging, gpu_engine: Engine) -> None:
    staging.workload("made", MEASURES, more=METRIC)
    run = staging.submit("made")
    staging.work()
    assert staging.run(run).state == "inconclusive", staging.run(run).reason
    taken = staging.rooms.runs.take_samples(run)
    assert not taken["refused"]
    assert [sample["step"] for sample in taken["samples"]] == ["made-0", "made-1"]
    assert '"executor":"docker","development":false' in taken["samples"][0]["text"]


def test_a_run_whose_check_failed_gives_none(staging: Staging, gpu_engine: Engine) -> None:
    staging.workload("made", MEASURES.replace("True", "False"), more=METRIC)
    run = staging.submit("made")
    staging.work()
    taken = staging.rooms.runs.take_samples(run)
    assert taken["samples"] == []
    assert "the run ended failed: made-0: check right failed" in taken["refused"][0]["reason"]
