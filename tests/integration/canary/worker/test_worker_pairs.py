"""Pairs on a real Docker engine whose worker is killed between pairs and between blocks."""

from __future__ import annotations

import signal

import pytest
from engines import Engine, vary_python
from staging import ENV, STACK, Staging, until

from compatgate.core.binding import digest_json

COMPARE = "compatgate.service.runs.queue.queue:DatabaseQueue.compare"
START = "compatgate.canary.executors.docker:DockerExecutor.start"
RECORD = "compatgate.service.runs.queue.queue:DatabaseQueue.record"
CHECKS = ENV + 'say.check("right", True)\n'
LASTS = CHECKS + "time.sleep(0.5)\n"
BORDERLINE = ENV + 'import os\nsay.check("right", os.urandom(1)[0] < 102, "out of tolerance")\n'
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
    (evidence,) = staging.rooms.runs.evidence().items
    assert (evidence.run, evidence.outcome) == (run, "failed")
    compared = staging.rooms.runs.comparisons([run])[run]
    assert (compared.metric, compared.outcome, compared.pairs) == ("good.time", "regression", 5)
    assert compared.effect == pytest.approx(0.12, abs=0.005)
    assert compared.reference == gpu_engine.api.inspect_image(IMAGES["A"])["Id"]
    assert compared.judgement == digest_json(detail.pairs["judgement"])
    assert gpu_engine.left_of(run) == []


@pytest.mark.parametrize("call", [START, RECORD], ids=["in-a-block", "between-blocks"])
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_pair_that_was_cut_is_run_again_from_its_beginning(
    staging: Staging, gpu_engine: Engine, submit, call: str
) -> None:
    run = submit(CHECKS)
    with staging.worker(dies_after=call) as worker:
        assert worker.wait(60) == -signal.SIGKILL
    staging.work_until_ended(run)
    found, detail = staging.run(run), staging.show(run)
    assert (found.state, found.attempts) == ("passed", 2), found.reason
    assert {block.name: block.attempt for block in detail.blocks} == {
        "good-0-pair1-A": 2,
        "good-0-pair1-B": 2,
    }
    assert gpu_engine.left_of(run) == []


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_an_engine_killed_in_a_block_costs_an_attempt_and_no_whole_pair(
    staging: Staging, gpu_engine: Engine, submit
) -> None:
    run = submit(LASTS + MEASURES, METRIC)
    block = f"/compatgate-{run}-1-good-0-pair2-B"

    def runs() -> bool:
        found = gpu_engine.api.containers(filters={"name": block})
        return any(one["State"] == "running" for one in found)

    with staging.worker():
        until(runs)
        gpu_engine.kill()
        try:
            log = staging.folder / "worker.log"
            until(lambda: "another worker will take it" in log.read_text())
        finally:
            gpu_engine.start()
    staging.work_until_ended(run)
    found, detail = staging.run(run), staging.show(run)
    assert found.state == "failed", found.reason
    assert found.attempts > 1
    assert "12.0 % higher" in found.reason
    attempts = {name: block.attempt for name, block in ((b.name, b) for b in detail.blocks)}
    assert attempts["good-0-pair1-A"] == attempts["good-0-pair1-B"] == 1
    assert attempts["good-0-pair2-A"] == attempts["good-0-pair2-B"] > 1
    assert detail.pairs["done"] == 5
    assert gpu_engine.left_of(run) == []


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_reruns_of_a_borderline_image_give_one_answer(staging: Staging, gpu_engine: Engine) -> None:
    staging.workload("good", BORDERLINE)
    runs, states = [], []
    while len(runs) < 5 or len(set(states)) == 1:
        runs.append(staging.submit("good", against="none"))
        staging.work_until_ended(runs[-1])
        states.append(staging.run(runs[-1]).state)
    assert set(states) == {"passed", "failed"}
    pool = staging.show(runs[0]).evidence
    assert pool.words == f"{states.count('passed')} of {len(states)} passed"
    assert [one.row.run for one in pool.pool] == runs[::-1]
    question = {"target": "prod", "stack": {**STACK, "arch": ["sm_80"]}}
    verdict = staging.rooms.gate.decide(question, asked_by="t", source="test")
    (finding,) = (one for one in verdict.findings if one.rule.startswith("CG81"))
    assert (finding.rule, verdict.allowed) == ("CG813", False), "whatever the last run said"
