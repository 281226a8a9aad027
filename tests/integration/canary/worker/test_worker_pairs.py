"""Pairs on a real Docker engine whose worker is killed between pairs and between blocks."""

from __future__ import annotations

import signal
from contextlib import ExitStack

import pytest
from engines import Engine, vary_python
from staging import ENV, LEASE, STACK, Staging, host_table, until

from compatgate.core.binding import digest_json

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)

CALLS = {
    "after-a-pair": "compatgate.service.runs.queue.queue:DatabaseQueue.compare",
    "in-a-block": "compatgate.canary.executors.docker:DockerExecutor.start",
    "between-blocks": "compatgate.service.runs.queue.queue:DatabaseQueue.record",
}
"""Host to the call after which its worker is killed."""
MEASURED = "after-a-pair"
"""Of these, the one whose program measures."""
CHECKS = ENV + 'say.check("right", True)\n'
LASTS = CHECKS + 'import os\ntime.sleep(0.5 * (os.environ["RATIO"] != "1.0"))\n'
BORDERLINE = ENV + 'import os\nsay.check("right", os.urandom(1)[0] < 102, "out of tolerance")\n'
MEASURES = """
import os, random
values = random.Random(0).gauss
ratio = float(os.environ["RATIO"])
say.metric("time", "ms", [ratio * (10.0 + values(0, 0.02)) for _ in range(6)])
"""
METRIC = '[metrics.time]\nunit = "ms"\nbetter = "lower"\n'
IMAGES = {"A": "compatgate-test/b:1", "B": "compatgate-test/b:2"}


def kill_workers(staging: Staging, tables: dict[str, str]) -> dict[str, str]:
    """Submit a run for each of `CALLS`, and return them by host once their workers were killed."""
    staging.hosts(*tables.values())
    staging.workload("measures", LASTS + MEASURES, more=METRIC)
    staging.workload("checks", CHECKS)
    runs = {}
    with ExitStack() as stack:
        workers = []
        for name, call in CALLS.items():
            suite = "measures" if name == MEASURED else "checks"
            runs[name] = staging.submit(suite, host=name, image=IMAGES["B"], against=IMAGES["A"])
            own, log = (staging.folder / f"{name}.{end}" for end in ("toml", "log"))
            own.write_text(tables[name])
            worker = staging.worker(dies_after=call, lease=60, hosts=own, log=log)
            workers.append(stack.enter_context(worker))
        assert [worker.wait(60) for worker in workers] == [-signal.SIGKILL] * len(workers)
    staging.expire_leases()
    return runs


def kill_engine(staging: Staging, engine: Engine, run: str, container: str) -> None:
    """Let a worker end a run, while the engine is killed in a container and started again."""

    def runs() -> bool:
        found = engine.api.containers(filters={"name": container})
        return any(one["State"] == "running" for one in found)

    with staging.worker(lease=3 * LEASE):
        until(runs)
        engine.kill()
        try:
            log = staging.folder / "worker.log"
            until(lambda: "another worker will take it" in log.read_text())
        finally:
            engine.start()
        until(lambda: staging.run(run).has_ended, seconds=120)


def test_whatever_is_killed_in_pairs_costs_an_attempt_and_no_whole_pair(
    staging: Staging, gpu_engine: Engine
) -> None:
    """Workers after a whole pair, in a block and between blocks; then the engine in a block."""
    for image, ratio in zip(IMAGES.values(), ("1.0", "1.12"), strict=True):
        vary_python(gpu_engine.api, image, RATIO=ratio)
    tables = {name: host_table(name, gpu_engine) for name in CALLS}
    runs = kill_workers(staging, tables)
    run = runs.pop(MEASURED)
    before = {block.name: block.body for block in staging.show(run).blocks}
    assert sorted(before) == ["measures-0-pair1-A", "measures-0-pair1-B"]

    staging.hosts(*(tables[name] for name in runs))
    staging.work_until_ended(*runs.values())
    for cut in runs.values():
        found, detail = staging.run(cut), staging.show(cut)
        assert (found.state, found.attempts) == ("passed", 2), found.reason
        assert {block.name: block.attempt for block in detail.blocks} == {
            "checks-0-pair1-A": 2,
            "checks-0-pair1-B": 2,
        }, "a pair that was cut is run again from its beginning"

    staging.hosts(tables[MEASURED])
    kill_engine(staging, gpu_engine, run, f"/compatgate-{run}-2-measures-0-pair2-B")
    found, detail = staging.run(run), staging.show(run)
    assert (found.state, found.attempts) == ("failed", 3), found.reason
    assert "12.0 % higher" in found.reason
    blocks = {block.name: block for block in detail.blocks}
    assert {name: blocks[name].body for name in before} == before, "a whole pair is kept"
    assert {block.attempt for name, block in blocks.items() if name not in before} == {3}
    assert detail.pairs["done"] == 5
    assert [step.name for step in detail.steps] == ["measures-0"]
    assert len(detail.steps[0].body["report"]["metrics"][0]["values"]) == 30
    (evidence,) = staging.rooms.runs.evidence(run=run).items
    assert evidence.outcome == "failed"
    compared = staging.rooms.runs.comparisons([run])[run]
    assert (compared.metric, compared.outcome, compared.pairs) == ("measures.time", "regression", 5)
    assert compared.effect == pytest.approx(0.12, abs=0.005)
    assert compared.reference == gpu_engine.api.inspect_image(IMAGES["A"])["Id"]
    assert compared.judgement == digest_json(detail.pairs["judgement"])
    assert [one for each in (run, *runs.values()) for one in gpu_engine.left_of(each)] == []


def test_reruns_of_a_borderline_image_give_one_answer(staging: Staging, gpu_engine: Engine) -> None:
    staging.workload("good", BORDERLINE)
    runs, states = [], []
    while len(set(states)) < 2:
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
