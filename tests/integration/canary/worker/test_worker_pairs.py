"""Pairs on a real Docker engine whose worker is killed between pairs and between blocks."""

from __future__ import annotations

import signal

import pytest
from engines import Engine, vary_python
from staging import ENV, Staging

COMPARE = "compatgate.service.runs.queue:DatabaseQueue.compare"
RECORD = "compatgate.service.runs.queue:DatabaseQueue.record"
CHECKS = ENV + 'say.check("right", True)\n'
MEASURES = """
import os, random
values = random.Random(0).gauss
ratio = float(os.environ["RATIO"])
say.metric("time", "ms", [ratio * (10.0 + values(0, 0.02)) for _ in range(6)])
"""
METRIC = '[metrics.time]\nunit = "ms"\nbetter = "lower"\n'
IMAGES = {"A": "compatgate-test/b:1", "B": "compatgate-test/b:2"}


@pytest.fixture
def submit(staging: Staging, gpu_engine: Engine):
    """Ask for a run of a program in pairs; its id. The candidate is 12 % slower."""
    for image, ratio in zip(IMAGES.values(), ("1.0", "1.12"), strict=True):
        vary_python(gpu_engine.api, image, RATIO=ratio)

    def ask(program: str, more: str = "") -> str:
        staging.workload("good", program, more=more)
        return staging.submit("good", image=IMAGES["B"], against=IMAGES["A"])

    return ask


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_worker_killed_between_blocks_is_followed_by_one_that_keeps_whole_pairs(
    staging: Staging, gpu_engine: Engine, submit
) -> None:
    run = submit(CHECKS + MEASURES, METRIC)
    with staging.worker(dies_after=COMPARE) as worker:
        assert worker.wait(60) == -signal.SIGKILL
    before = {block.name: block.body for block in staging.show(run).blocks}
    assert sorted(before) == ["good-0-pair1-A", "good-0-pair1-B"]
    staging.work_until_ended(run)
    found, detail = staging.run(run), staging.show(run)
    assert (found.state, found.attempts) == ("failed", 2), found.reason
    assert "12.0 % higher" in found.reason
    blocks = {block.name: block for block in detail.blocks}
    assert {name: blocks[name].body for name in before} == before, "a whole pair is kept"
    assert {block.attempt for name, block in blocks.items() if name not in before} == {2}
    assert detail.pairs["done"] == 5
    assert [step.name for step in detail.steps] == ["good-0"]
    assert len(detail.steps[0].body["report"]["metrics"][0]["values"]) == 30
    (evidence,) = staging.gate.runs.evidence().items
    assert (evidence.run, evidence.outcome) == (run, "failed")
    assert gpu_engine.left_of(run) == []


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_pair_that_was_cut_is_run_again_from_its_beginning(
    staging: Staging, gpu_engine: Engine, submit
) -> None:
    run = submit(CHECKS)
    with staging.worker(dies_after=RECORD) as worker:
        assert worker.wait(60) == -signal.SIGKILL
    staging.work_until_ended(run)
    found, detail = staging.run(run), staging.show(run)
    assert (found.state, found.attempts) == ("passed", 2), found.reason
    assert {block.name: block.attempt for block in detail.blocks} == {
        "good-0-pair1-A": 2,
        "good-0-pair1-B": 2,
    }
    assert gpu_engine.left_of(run) == []
