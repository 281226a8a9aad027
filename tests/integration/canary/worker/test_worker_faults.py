"""Faults of a candidate on a real engine: what the run shows, and what the gate then answers."""

from __future__ import annotations

import pytest
from engines import Engine, vary_python
from staging import ENV, STACK, Staging

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)

GOOD = "compatgate-test/faults:good"
PROGRAM = f"""\
import os, random, sys, time
fault, values = os.environ.get("FAULT", ""), random.Random(0).gauss
if fault == "crash": os._exit(139)
if fault == "no-gpu": raise SystemExit(77)
{ENV}
if fault == "hang": time.sleep(600)
if fault != "no-check": say.check("right", True)
ratio = float(os.environ.get("RATIO", "1"))
if fault != "no-metric":
    say.metric("time", "ms", [ratio * (1.0 + values(0, 0.002)) for _ in range(30)])
"""
METRIC = '[metrics.time]\nunit = "ms"\nbetter = "lower"\n'
FAULTS = {
    "2.5 x slower": {"RATIO": "2.5"},
    "10 x slower": {"RATIO": "10"},
    **{name: {"FAULT": name} for name in ("hang", "crash", "no-gpu", "no-metric", "no-check")},
}
REASONS = {
    "2.5 x slower": "150 % higher",
    "10 x slower": "900 % higher",
    "hang": "was stopped after 2 s",
    "crash": "ended with status 139",
    "no-gpu": "found no GPU",
    "no-metric": "did not report metric time",
    "no-check": "did not report check right",
}
DENIED, PASSED = ("CG813", False), ("", True)


@pytest.fixture
def proven(staging: Staging, gpu_engine: Engine) -> Staging:
    """A gate that passes, after a good run whose baseline a person approved."""
    vary_python(gpu_engine.api, GOOD, RATIO="1")
    staging.workload("good", PROGRAM, timeout="2s", more=METRIC)
    for _ in range(3):
        first = staging.submit("good", image=GOOD, against="none")
        staging.work()
        assert staging.run(first).state == "inconclusive", "there is no baseline yet"
    (proposed,) = staging.rooms.baselines.list().items
    staging.rooms.baselines.approve(proposed.id, by="tester")
    second = staging.submit("good", image=GOOD, against="none")
    staging.work()
    assert staging.run(second).state == "passed", staging.run(second).reason
    assert answer(staging) == PASSED
    return staging


def answer(staging: Staging) -> tuple[str, bool]:
    """The rule about evidence that speaks, and whether the gate allows the stack."""
    question = {"target": "prod", "stack": {**STACK, "arch": ["sm_80"]}}
    verdict = staging.rooms.gate.decide(question, asked_by="t", source="test")
    rules = [one.rule for one in verdict.findings if one.rule.startswith("CG81")]
    return "".join(rules), verdict.allowed


@pytest.mark.parametrize("against", ["none", GOOD], ids=["alone", "in-pairs"])
def test_a_candidates_fault_fails_its_run_and_the_gate_denies(
    proven: Staging, gpu_engine: Engine, against: str
) -> None:
    proposals = [one.id for one in proven.rooms.baselines.list().items]
    unclear = {"no-gpu", "no-metric", "no-check"} if against == "none" else set()
    found, wanted = {}, {}
    for fault, environment in FAULTS.items():
        image = f"compatgate-test/faults:{fault.replace(' ', '-')}"
        vary_python(gpu_engine.api, image, **environment)
        run = proven.submit("good", image=image, against=against)
        proven.work()
        row = proven.run(run)
        evidence = [one.outcome for one in proven.rooms.runs.evidence(run=run).items]
        print(f"{fault} | {row.state}: {row.reason} | {evidence} | {answer(proven)}")
        found[fault] = (row.state, REASONS[fault] in row.reason, evidence, answer(proven))
        wanted[fault] = (
            ("inconclusive", True, [], PASSED)
            if fault in unclear
            else ("failed", True, ["failed"], DENIED)
        )
        if evidence == ["failed"]:
            proven.rooms.runs.discard(run, by="tester", reason="the next fault is tested alone")
    assert found == wanted
    assert [one.id for one in proven.rooms.baselines.list().items] == proposals
