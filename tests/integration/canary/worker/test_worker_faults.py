"""Faults on a real engine: what the run shows, what becomes evidence, what the gate answers.

The table of docs/reference/faults.md has a row for each. A simulated host probe says that the GPU
is there, as NVML does on a staging host. All tests share one gate with its approved baseline.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from database_template import new_database
from engines import Engine, vary_python
from staging import DRIVER, ENV, STACK, Staging, host_table, make_staging

from compatgate.canary.executors.host_watch import HostObservation
from compatgate.canary.judge.baseline import RELIABLE_RUNS
from compatgate.resources import package_dir
from compatgate.service.app import open_rooms

PAGE = package_dir().parent / "docs" / "reference" / "faults.md"
GOOD = "compatgate-test/faults:good"
TIMEOUT_S = 10
"""Ten times as long as a good program takes on a busy machine."""
FLOOD_MIB = int(os.environ.get("COMPATGATE_TEST_FLOOD_MIB", "32"))
"""Printed by the fault that the page calls 1 GB: four times the log that an engine keeps of it."""
PROGRAM = f"""\
import os, random, sys, time
fault, values = os.environ.get("FAULT", ""), random.Random(0).gauss
if fault == "crash": os._exit(139)
if fault == "no-gpu": raise SystemExit(77)
{ENV.replace(f'driver="{DRIVER}"', f'driver=os.environ.get("DRIVER", "{DRIVER}")')}
if fault == "hang": time.sleep(600)
if fault == "fork-bomb":
    while True: os.fork()
if fault == "log":
    for _ in range({FLOOD_MIB}): sys.stdout.write(("x" * 1023 + "\\n") * 1024)
if fault != "no-check": say.check("right", True)
ratio = float(os.environ.get("RATIO", "1"))
if fault != "no-metric":
    say.metric("time", "ms", [ratio * (1.0 + values(0, 0.002)) for _ in range(30)])
"""
METRIC = '[metrics.time]\nunit = "ms"\nbetter = "lower"\n'
FAULTS = {
    "2.5 x slower": {"RATIO": "2.5"},
    "10 x slower": {"RATIO": "10"},
    "hang": {"FAULT": "hang"},
    "crash": {"FAULT": "crash"},
    "exit 77": {"FAULT": "no-gpu"},
    "missing metric": {"FAULT": "no-metric"},
    "missing check": {"FAULT": "no-check"},
    "wrong env": {"DRIVER": "550.54.15"},
    "fork bomb": {"FAULT": "fork-bomb"},
    "1 GB of log": {"FAULT": "log"},
}
"""Fault to the variables of its image."""
REASONS = {
    "2.5 x slower": "150 % higher",
    "10 x slower": "900 % higher",
    "hang": f"was stopped after {TIMEOUT_S} s",
    "crash": "ended with status 139",
    "exit 77": "found no GPU",
    "missing metric": "did not report metric time",
    "missing check": "did not report check right",
    "wrong env": "but the workloads measured 550.54.15",
    "fork bomb": "ended with status 1|was killed for using more than",
    "1 GB of log": "more than the output limit|broke the line protocol",
}
UNDECIDED = {"alone": {"wrong env", "1 GB of log"}, "in pairs": {"wrong env"}}
"""Faults that are no evidence: what ran was not what was asked for, or output was lost."""
DENIED, PASSED = ("CG813", False), ("", True)


class Probe:
    """The host's own probe; it finds the GPU healthy unless a test says otherwise."""

    def __init__(self) -> None:
        self.state = "healthy"

    @contextmanager
    def __call__(self, slots: Any) -> Iterator[Callable[[], HostObservation]]:
        yield self.observe

    def observe(self) -> HostObservation:
        return HostObservation(self.state, "as the test says", {"state": self.state})


@pytest.fixture(scope="module")
def shared(
    gpu_engine: Engine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Staging, Probe]]:
    """A gate that passes, after good runs whose baseline a person approved."""
    folder, probe = tmp_path_factory.mktemp("faults"), Probe()
    url = new_database(folder / "gate.db")
    rooms = open_rooms(url, overlays=[])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("compatgate.canary.worker.watch_local", lambda *_: probe)
        staging = make_staging(rooms, url, folder, gpu_engine)
        staging.hosts(host_table("stage", gpu_engine, health="local"))
        vary_python(gpu_engine.api, GOOD, RATIO="1")
        staging.workload("good", PROGRAM, timeout=f"{TIMEOUT_S}s", more=METRIC)
        for _ in range(RELIABLE_RUNS):
            first = staging.submit("good", image=GOOD, against="none")
            staging.work()
            assert staging.run(first).state == "inconclusive", "there is no baseline yet"
        (proposed,) = rooms.baselines.list().items
        rooms.baselines.approve(proposed.id, by="tester")
        second = staging.submit("good", image=GOOD, against="none")
        staging.work()
        assert staging.run(second).state == "passed", staging.run(second).reason
        yield staging, probe
    rooms.close()


@pytest.fixture
def probe(shared: tuple[Staging, Probe]) -> Iterator[Probe]:
    yield shared[1]
    shared[1].state = "healthy"


@pytest.fixture
def proven(shared: tuple[Staging, Probe]) -> Iterator[Staging]:
    """The gate, which passes; failures that a test leaves are discarded."""
    staging, _ = shared
    assert answer(staging) == PASSED
    yield staging
    if answer(staging) == PASSED:
        return
    for row in staging.rooms.runs.evidence(outcome="failed").items:
        stored = staging.show(row.run).evidence
        if stored and stored.discarded is None:
            staging.rooms.runs.discard(row.run, by="tester", reason="of another test")


def answer(staging: Staging) -> tuple[str, bool]:
    """The rule about evidence that speaks, and whether the gate allows the stack."""
    question = {"target": "prod", "stack": {**STACK, "arch": ["sm_80"]}}
    verdict = staging.rooms.gate.decide(question, asked_by="t", source="test")
    rules = [one.rule for one in verdict.findings if one.rule.startswith("CG81")]
    return "".join(rules), verdict.allowed


def table() -> dict[tuple[str, str], tuple[str, str, str]]:
    """The rows of the page: fault and way to run, outcome, evidence and answer."""
    text = PAGE.read_text().partition("## Candidates")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    return {
        (row[0], row[1]): (row[3].partition(":")[0], row[4], row[5])
        for row in rows
        if len(row) == 6
    }


@pytest.mark.parametrize("how", ["alone", "in pairs"])
def test_a_candidates_fault_fails_its_run_and_the_gate_denies(
    proven: Staging, gpu_engine: Engine, how: str
) -> None:
    proposals = [one.id for one in proven.rooms.baselines.list().items]
    found, wanted, page = {}, {}, table()
    for fault, environment in FAULTS.items():
        image = f"compatgate-test/faults:{re.sub('[^a-z0-9]+', '-', fault.lower())}"
        vary_python(gpu_engine.api, image, **environment)
        run = proven.submit("good", image=image, against="none" if how == "alone" else GOOD)
        proven.work_until_ended(run)
        row = proven.run(run)
        evidence = [one.outcome for one in proven.rooms.runs.evidence(run=run).items]
        says, allowed = answer(proven)
        print(f"{fault} | {how} | {row.state}: {row.reason} | {evidence} | {says} {allowed}")
        fits = re.search(REASONS[fault], row.reason) is not None
        found[fault] = (row.state, fits, evidence, (says, allowed))
        wanted[fault] = (
            ("inconclusive", True, [], PASSED)
            if fault in UNDECIDED[how]
            else ("failed", True, ["failed"], DENIED)
        )
        told = (row.state, "failed" if evidence else "none", "denied" if says else "allowed")
        assert page[fault, how] == told, f"{PAGE.name} says something else of {fault}, {how}"
        if evidence == ["failed"]:
            proven.rooms.runs.discard(run, by="tester", reason="the next fault is tested alone")
    assert found == wanted
    assert [one.id for one in proven.rooms.baselines.list().items] == proposals


def test_without_a_probe_a_missing_gpu_is_undecided_alone(
    proven: Staging, gpu_engine: Engine, probe: Probe
) -> None:
    vary_python(gpu_engine.api, "compatgate-test/faults:exit-77", FAULT="no-gpu")
    probe.state = "unobserved"
    run = proven.submit("good", image="compatgate-test/faults:exit-77", against="none")
    proven.work_until_ended(run)
    assert (proven.run(run).state, answer(proven)) == ("inconclusive", PASSED)


@pytest.mark.parametrize("state", ["sick", "shared"])
def test_the_hosts_fault_is_retried_and_then_inconclusive_with_what_is_missing(
    proven: Staging, probe: Probe, state: str
) -> None:
    probe.state = state
    run = proven.submit("good", image=GOOD, against="none")
    proven.work_until_ended(run)
    row = proven.run(run)
    assert (row.state, row.attempts) == ("inconclusive", 3)
    assert f"the host was {state}" in row.reason
    assert "; needs " in row.reason
    assert answer(proven) == PASSED


def test_an_improbable_gain_passes_only_with_a_reason(
    proven: Staging, gpu_engine: Engine, submit_fast: Callable[..., str]
) -> None:
    known = [one.id for one in proven.rooms.baselines.list().items]
    run = submit_fast()
    assert proven.run(run).state == "inconclusive"
    assert "canary run --explained REASON" in proven.run(run).reason
    assert [one.id for one in proven.rooms.baselines.list().items] == known
    run = submit_fast(explained="FP8 kernels")
    assert (proven.run(run).state, proven.run(run).explained) == ("passed", "FP8 kernels")
    newest = proven.rooms.baselines.list().items[0]
    assert (newest.state, newest.body["explained"]) == ("proposed", "FP8 kernels")
    (link,) = proven.rooms.audit.list_audit(action="run.queued", limit=1).items
    assert link.detail["explained"] == "FP8 kernels"


@pytest.fixture
def submit_fast(proven: Staging, gpu_engine: Engine) -> Callable[..., str]:
    """Run an image that is three times as fast, to its end."""
    vary_python(gpu_engine.api, "compatgate-test/faults:fast", RATIO="0.3")

    def submit(**fields: Any) -> str:
        image = "compatgate-test/faults:fast"
        run = proven.submit("good", image=image, against="none", **fields)
        proven.work_until_ended(run)
        return run

    return submit
