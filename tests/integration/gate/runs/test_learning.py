"""Baselines are learned from own runs, version by version; a person approves each."""

from __future__ import annotations

import pytest
from sample_runs import FAMILY, GEMM, SKU, propose_samples, values

from compatgate.canary.engine.interface import BaselineKey
from compatgate.canary.judge.result import Samples
from compatgate.errors import Conflict
from compatgate.service.gate.questions.service import Gate

GROUND = BaselineKey("gemm@0123456789ab", SKU, FAMILY)


def ran(gate: Gate, run: str, centre: float = 10.0) -> None:
    """A sound run of this gate's own."""
    found = [Samples("time", "ms", (values(centre),))]
    gate.baselines.offer(GROUND, GEMM.metrics, f"{run}:gemm-0", found)


def states(gate: Gate) -> list[tuple[int, str, list[str]]]:
    """Every version: number, state, and the runs that it rests on; oldest first."""
    return [
        (row.version, row.state, [run["run"] for run in row.body["runs"]])
        for row in reversed(gate.baselines.list().items)
    ]


def test_nothing_is_judged_by_a_version_until_it_is_approved(gate: Gate) -> None:
    for run in ("run_1", "run_2", "run_3"):
        ran(gate, run)
    (row,) = gate.baselines.list().items
    assert (row.version, row.state, row.proposed_by) == (1, "proposed", "run_3:gemm-0")
    assert gate.baselines.approved(GROUND) == {}
    shown = gate.baselines.approve(row.id, by="ana")
    assert (shown.state, shown.learnt_from, shown.decided_by) == ("approved", 3, "ana")
    assert gate.baselines.approved(GROUND)["time"].runs == (values(),) * 3


def test_a_run_is_learned_from_once(gate: Gate) -> None:
    ran(gate, "run_1")
    ran(gate, "run_1")
    assert states(gate) == [(1, "proposed", ["run_1:gemm-0"])]


def test_the_first_own_run_makes_a_version_without_the_samples(gate: Gate) -> None:
    number = propose_samples(gate, GROUND, "run_1", "run_2", "run_3")
    gate.baselines.approve(number, by="ana")
    ran(gate, "run_own", 10.9)
    ran(gate, "run_too", 10.8)
    assert states(gate)[1:] == [(2, "proposed", ["run_own:gemm-0", "run_too:gemm-0"])]


def test_an_own_run_takes_the_place_of_samples_that_nobody_approved(gate: Gate) -> None:
    propose_samples(gate, GROUND, "run_1")
    ran(gate, "run_own")
    assert states(gate) == [(1, "proposed", ["run_own:gemm-0"])]


def test_after_a_version_is_refused_own_runs_start_anew(gate: Gate) -> None:
    ran(gate, "run_1")
    (row,) = gate.baselines.list().items
    gate.baselines.approve(row.id, by="ana")
    assert gate.baselines.refuse(row.id, by="ana").state == "refused"
    assert gate.baselines.approved(GROUND) == {}
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
