"""Baselines are learned from own runs, version by version; a person approves each."""

from __future__ import annotations

import pytest
from sample_runs import FAMILY, GEMM, SKU, propose_samples, values

from compatgate.canary.engine import BaselineKey
from compatgate.canary.judge.result import Samples
from compatgate.errors import BadInput, Conflict
from compatgate.service.app import Rooms

GROUND = BaselineKey("gemm@0123456789ab", SKU, FAMILY)


def ran(rooms: Rooms, run: str, centre: float = 10.0) -> None:
    """A sound run of this gate's own."""
    found = [Samples("time", "ms", (values(centre),))]
    rooms.baselines.offer(GROUND, GEMM.metrics, f"{run}:gemm-0", found)


def states(rooms: Rooms) -> list[tuple[int, str, list[str]]]:
    """Every version: number, state, and the runs that it rests on; oldest first."""
    return [
        (row.version, row.state, [run["run"] for run in row.body["runs"]])
        for row in reversed(rooms.baselines.list().items)
    ]


def test_nothing_is_judged_by_a_version_until_it_is_approved(rooms: Rooms) -> None:
    for run in ("run_1", "run_2", "run_3"):
        ran(rooms, run)
    (row,) = rooms.baselines.list().items
    assert (row.version, row.state, row.proposed_by) == (1, "proposed", "run_3:gemm-0")
    assert rooms.baselines.approved(GROUND) == {}
    shown = rooms.baselines.approve(row.id, by="ana")
    assert (shown.state, shown.learnt_from, shown.decided_by) == ("approved", 3, "ana")
    assert rooms.baselines.approved(GROUND)["time"].runs == (values(),) * 3


def test_a_run_is_learned_from_once(rooms: Rooms) -> None:
    ran(rooms, "run_1")
    ran(rooms, "run_1")
    assert states(rooms) == [(1, "proposed", ["run_1:gemm-0"])]


def test_the_first_own_run_makes_a_version_without_the_samples(rooms: Rooms) -> None:
    number = propose_samples(rooms, GROUND, "run_1", "run_2", "run_3")
    rooms.baselines.approve(number, by="ana")
    ran(rooms, "run_own", 10.9)
    ran(rooms, "run_too", 10.8)
    assert states(rooms)[1:] == [(2, "proposed", ["run_own:gemm-0", "run_too:gemm-0"])]


def test_an_own_run_takes_the_place_of_samples_that_nobody_approved(rooms: Rooms) -> None:
    propose_samples(rooms, GROUND, "run_1")
    ran(rooms, "run_own")
    assert states(rooms) == [(1, "proposed", ["run_own:gemm-0"])]


def test_two_runs_cannot_be_approved_because_they_do_not_show_how_far_runs_differ(
    rooms: Rooms,
) -> None:
    ran(rooms, "run_1")
    ran(rooms, "run_2")
    (row,) = rooms.baselines.list().items
    with pytest.raises(BadInput, match="learned from 2 runs, 3 are needed"):
        rooms.baselines.approve(row.id, by="ana")


def test_the_oldest_approved_version_stays_known_until_it_is_refused(rooms: Rooms) -> None:
    for centre, run in ((10.0, "a"), (10.4, "b")):
        for number in range(3):
            ran(rooms, f"run_{run}{number}", centre)
        newest = rooms.baselines.list(state="proposed").items[0]
        rooms.baselines.approve(newest.id, by="ana")
    assert rooms.baselines.approved(GROUND)["time"].oldest == (values(),) * 3
    oldest = rooms.baselines.list(state="replaced").items[0]
    rooms.baselines.refuse(oldest.id, by="ana")
    known = rooms.baselines.approved(GROUND)["time"]
    assert known.oldest == known.runs


def test_after_a_version_is_refused_own_runs_start_anew(rooms: Rooms) -> None:
    for run in ("run_1", "run_2", "run_3"):
        ran(rooms, run)
    (row,) = rooms.baselines.list().items
    rooms.baselines.approve(row.id, by="ana")
    assert rooms.baselines.refuse(row.id, by="ana").state == "refused"
    assert rooms.baselines.approved(GROUND) == {}
    ran(rooms, "run_own", 12.0)
    assert states(rooms)[1:] == [(2, "proposed", ["run_own:gemm-0"])]
    with pytest.raises(Conflict, match="is refused by ana"):
        rooms.baselines.approve(row.id, by="ana")
    with pytest.raises(Conflict, match="is refused"):
        rooms.baselines.refuse(row.id, by="ana")
    (link,) = rooms.audit.list_audit(action="baseline.refuse").items
    assert link.detail["version"] == 1


def test_after_a_refused_proposal_the_next_goes_on_from_what_is_approved(rooms: Rooms) -> None:
    first = ["run_0", "run_1", "run_a"]
    for run in first:
        ran(rooms, run)
    rooms.baselines.approve(rooms.baselines.list().items[0].id, by="ana")
    ran(rooms, "run_b")
    rooms.baselines.refuse(rooms.baselines.list().items[0].id, by="ana")
    ran(rooms, "run_b")
    ran(rooms, "run_c")
    known = [f"{run}:gemm-0" for run in first]
    assert states(rooms) == [
        (1, "approved", known),
        (2, "refused", [*known, "run_b:gemm-0"]),
        (3, "proposed", [*known, "run_c:gemm-0"]),
    ]
