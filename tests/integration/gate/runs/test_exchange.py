"""Baselines start from samples and travel between gates; a person approves each all the same."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from sample_runs import FAMILY, GEMM, SKU, sample_source, values

from compatgate.canary.engine.interface import BaselineKey
from compatgate.canary.judge.result import Samples
from compatgate.canary.samples.sample import MOMENT
from compatgate.canary.workloads import Library
from compatgate.documents.sources import Source
from compatgate.errors import Conflict, ManyProblems
from compatgate.kit import clock
from compatgate.service.baselines.exchange import ImportReport
from compatgate.service.gate.service import Gate

GROUND = BaselineKey("gemm@0123456789ab", SKU, FAMILY)
Take = Callable[..., ImportReport]


@pytest.fixture
def gate(gate: Gate) -> Gate:
    """A gate that knows gemm alone."""
    library = Library()
    library.workloads = {"gemm": GEMM}
    gate.runs.catalogue = lambda: library
    return gate


@pytest.fixture
def take(gate: Gate) -> Take:
    return lambda *sources: gate.exchange.take(sources, by="mara")


@pytest.fixture
def sampled(gate: Gate) -> Callable[..., list[Source]]:
    """Files of samples, one for each run that is named."""
    return lambda *runs: [sample_source(gate.facts, run=run) for run in runs]


def ran(gate: Gate, run: str, centre: float = 10.0) -> None:
    """A sound run of this gate's own."""
    found = [Samples("time", "ms", (values(centre),))]
    gate.baselines.offer(GROUND, GEMM.metrics, f"{run}:gemm-0", found)


def file_of(gate: Gate, **filters: str) -> Source:
    lines = gate.exchange.lines(**filters)
    return Source("b.jsonl", "".join(f"{json.dumps(line)}\n" for line in lines))


def states(gate: Gate) -> list[tuple[int, str, list[str]]]:
    """Every version: number, state, and the runs that it rests on; oldest first."""
    return [
        (row.version, row.state, [run["run"] for run in row.body["runs"]])
        for row in reversed(gate.baselines.list().items)
    ]


def test_samples_propose_the_first_version_and_nothing_is_judged_by_it(
    gate: Gate, take: Take, sampled: Callable[..., list[Source]]
) -> None:
    (row,) = take(*sampled("run_1", "run_2", "run_3")).proposed
    assert (row.version, row.state, row.proposed_by) == (1, "proposed", "mara")
    assert gate.baselines.approved(GROUND) == {}
    baseline = gate.baselines.show(row.id).baseline
    assert baseline.starting
    assert not baseline.thin
    source = baseline.runs[0].sample
    assert source is not None
    assert (source.measured_at, source.driver) == ("2026-11-21T20:16:37Z", "535.183.01")
    gate.baselines.approve(row.id, by="ana")
    assert gate.baselines.approved(GROUND)["time"].runs == (values(),) * 3


def test_importing_twice_changes_nothing(
    gate: Gate, take: Take, sampled: Callable[..., list[Source]]
) -> None:
    take(*sampled("run_1"), *sampled("run_1"))
    before = gate.baselines.list().items
    again = take(*sampled("run_1"))
    assert (again.proposed, len(again.unchanged)) == ((), 1)
    assert "version 1 contains it already" in again.unchanged[0].reason
    assert gate.baselines.list().items == before
    assert len(gate.history.list_audit(action="baseline.import").items) == 1


def test_more_samples_join_those_that_wait_for_approval(
    gate: Gate, take: Take, sampled: Callable[..., list[Source]]
) -> None:
    take(*sampled("run_1"))
    take(*sampled("run_1", "run_2"))
    assert states(gate) == [(1, "proposed", ["run_1:gemm-0", "run_2:gemm-0"])]


def test_what_was_measured_here_comes_before_samples(
    gate: Gate, take: Take, sampled: Callable[..., list[Source]]
) -> None:
    ran(gate, "run_own")
    left = take(*sampled("run_1")).unchanged
    assert "version 1 of runs here is proposed (baseline " in left[0].reason
    gate.baselines.approve(gate.baselines.list().items[0].id, by="ana")
    left = take(*sampled("run_1")).unchanged
    assert left[0].reason == "version 1 is approved: samples only start a new baseline"
    assert states(gate) == [(1, "approved", ["run_own:gemm-0"])]


def test_the_first_own_run_makes_a_version_without_the_samples(
    gate: Gate, take: Take, sampled: Callable[..., list[Source]]
) -> None:
    take(*sampled("run_1", "run_2", "run_3"))
    gate.baselines.approve(gate.baselines.list().items[0].id, by="ana")
    ran(gate, "run_own", 10.9)
    ran(gate, "run_too", 10.8)
    assert states(gate)[1:] == [(2, "proposed", ["run_own:gemm-0", "run_too:gemm-0"])]


def test_an_own_run_takes_the_place_of_samples_that_nobody_approved(
    gate: Gate, take: Take, sampled: Callable[..., list[Source]]
) -> None:
    take(*sampled("run_1"))
    ran(gate, "run_own")
    assert states(gate) == [(1, "proposed", ["run_own:gemm-0"])]


def test_what_does_not_fit_is_refused_and_the_rest_is_taken(
    gate: Gate, take: Take, sampled: Callable[..., list[Source]]
) -> None:
    stale = sample_source(gate.facts, run="run_9", digest="sha256:" + "f" * 64)
    found = take(*sampled("run_1"), stale)
    assert len(found.proposed) == 1
    assert [(left.what, "has changed since" in left.reason) for left in found.refused] == [
        ("run_9.jsonl", True)
    ]


def test_a_malformed_file_changes_nothing(
    gate: Gate, take: Take, sampled: Callable[..., list[Source]]
) -> None:
    with pytest.raises(ManyProblems, match="nothing was changed"):
        take(*sampled("run_1"), Source("b.jsonl", '{"type": "sample"}\n'))
    assert not gate.baselines.list().items


def test_what_is_approved_travels_to_another_gate_as_a_proposal(gate: Gate, take: Take) -> None:
    for run in ("run_a", "run_b", "run_c"):
        ran(gate, run)
    assert len(gate.exchange.lines()) == 1, "what nobody has approved stays"
    (row,) = gate.baselines.list().items
    gate.baselines.approve(row.id, by="ana")
    exported = file_of(gate, workload="gemm", sku=SKU)
    assert len(gate.exchange.lines(sku="L4")) == 1
    assert len(gate.exchange.lines(workload=GROUND.workload)) == 2
    assert len(gate.exchange.lines(workload="gem")) == 1

    assert "contains it already" in take(exported).unchanged[0].reason
    elsewhere = Source(exported.file, exported.text.replace("run_c", "run_d"))
    (proposed,) = take(elsewhere).proposed
    assert (proposed.version, proposed.state) == (2, "proposed")
    baseline = gate.baselines.show(proposed.id).baseline
    today = clock.now().strftime(MOMENT)[:10]
    assert baseline.source == f"version 1 of another gate, approved by ana on {today}"
    assert gate.baselines.approved(GROUND)["time"].runs == (values(),) * 3
    assert take(elsewhere).proposed == ()


def test_an_import_does_not_take_the_place_of_own_runs_that_wait(gate: Gate, take: Take) -> None:
    ran(gate, "run_a")
    gate.baselines.approve(gate.baselines.list().items[0].id, by="ana")
    exported = file_of(gate)
    ran(gate, "run_b")
    other = Source("o.jsonl", exported.text.replace("run_a", "run_z"))
    assert "of runs here is proposed" in take(other).unchanged[0].reason
    assert states(gate)[-1] == (2, "proposed", ["run_a:gemm-0", "run_b:gemm-0"])


def test_values_that_nothing_can_be_learnt_from_are_refused(gate: Gate, take: Take) -> None:
    ran(gate, "run_a")
    gate.baselines.approve(gate.baselines.list().items[0].id, by="ana")
    lines = gate.exchange.lines()
    lines[1]["runs"] = [{"run": "run_x", "values": [1.0, 2.0]}]
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    (left,) = take(Source("b.jsonl", text)).refused
    assert "2 values, 30 are needed" in left.reason


def test_an_import_is_a_link_of_the_audit_chain(
    gate: Gate, take: Take, sampled: Callable[..., list[Source]]
) -> None:
    take(*sampled("run_1"))
    (link,) = gate.history.list_audit(action="baseline.import").items
    assert (link.actor, link.detail["files"]) == ("mara", 1)
    assert gate.history.verify().ok


def test_samples_that_do_not_fit_here_are_refused_and_own_runs_start_anew(
    gate: Gate, take: Take, sampled: Callable[..., list[Source]]
) -> None:
    (row,) = take(*sampled("run_1", "run_2", "run_3")).proposed
    gate.baselines.approve(row.id, by="ana")
    assert gate.baselines.refuse(row.id, by="ana").row.state == "refused"
    assert gate.baselines.approved(GROUND) == {}
    assert "version 1 contains it already" in take(*sampled("run_1")).unchanged[0].reason
    assert "is refused: samples only start" in take(*sampled("run_4")).unchanged[0].reason
    ran(gate, "run_own", 12.0)
    assert states(gate)[1:] == [(2, "proposed", ["run_own:gemm-0"])]
    with pytest.raises(Conflict, match="is refused by ana"):
        gate.baselines.approve(row.id, by="ana")
    with pytest.raises(Conflict, match="is refused"):
        gate.baselines.refuse(row.id, by="ana")
    (link,) = gate.history.list_audit(action="baseline.refuse").items
    assert link.detail["version"] == 1


def test_after_a_refused_proposal_the_next_goes_on_from_what_is_approved(gate: Gate) -> None:
    ran(gate, "run_a")
    gate.baselines.approve(gate.baselines.list().items[0].id, by="ana")
    ran(gate, "run_b")
    gate.baselines.refuse(gate.baselines.list().items[0].id, by="ana")
    ran(gate, "run_b")
    ran(gate, "run_c")
    assert states(gate) == [
        (1, "approved", ["run_a:gemm-0"]),
        (2, "refused", ["run_a:gemm-0", "run_b:gemm-0"]),
        (3, "proposed", ["run_a:gemm-0", "run_c:gemm-0"]),
    ]
