"""Workers that share hosts, slots and a queue."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from engines import Engine
from staging import GOOD, HANGS, Staging, host_table, until

from compatgate.service.runs.queue.models import RunRow

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


def spans(staging: Staging, runs: Iterable[RunRow]) -> list[tuple[Any, Any]]:
    """When the containers of some runs ran, first one first."""
    steps = [step.body for run in runs for step in staging.show(run.id).steps]
    return sorted((step["started_at"], step["finished_at"]) for step in steps)


def most_at_once(found: list[tuple[Any, Any]]) -> int:
    moments = sorted([(begin, 1) for begin, _ in found] + [(end, -1) for _, end in found])
    busy, most = 0, 0
    for _, change in moments:
        busy += change
        most = max(most, busy)
    return most


def test_two_workers_on_one_slot_run_one_after_the_other(
    staging: Staging, gpu_engine: Engine
) -> None:
    staging.workload("good", GOOD)
    runs = [staging.submit("good") for _ in range(4)]
    with staging.worker("--name", "a"), staging.worker("--name", "b"):
        found = [staging.await_state(run, "passed") for run in runs]
    assert all(run.attempts == 1 for run in found)
    assert all(end <= begin for (_, end), (begin, _) in pairwise(spans(staging, found)))
    assert all(gpu_engine.left_of(run) == [] for run in runs)


def test_twelve_runs_share_the_slots_of_three_hosts(staging: Staging, gpu_engine: Engine) -> None:
    slots = {"one": 1, "two": 2, "three": 3}
    staging.hosts(*(host_table(name, gpu_engine, slots=n) for name, n in slots.items()))
    staging.workload("good", GOOD)
    runs = [staging.submit("good", target="prod", host=None) for _ in range(12)]
    staging.work_until_ended(*runs)
    found = [staging.run(run) for run in runs]
    assert {(run.state, run.attempts) for run in found} == {("passed", 1)}
    for name, most in slots.items():
        mine = [run for run in found if run.on_host == name]
        assert mine
        assert most_at_once(spans(staging, mine)) <= most
    assert most_at_once(spans(staging, found)) > 1
    assert all(gpu_engine.left_of(run) == [] for run in runs)
    assert {host.busy for host in staging.rooms.runs.hosts().items if host.name in slots} == {0}


def test_containers_get_the_gpus_of_their_slots(staging: Staging, gpu_engine: Engine) -> None:
    staging.hosts(host_table("stage", gpu_engine, slots=2))
    staging.workload("good", HANGS)
    runs = [staging.submit("good") for _ in range(2)]
    with staging.worker():
        for run in runs:
            staging.await_output(run, b"began")
        asked = [
            gpu_engine.api.inspect_container(f"compatgate-{run}-1-good-0")["HostConfig"][
                "DeviceRequests"
            ][0]["DeviceIDs"]
            for run in runs
        ]
        assert sorted(asked) == [["0"], ["1"]]
        for run in runs:
            staging.rooms.runs.cancel(run, by="tester")
        for run in runs:
            staging.await_state(run, "cancelled")
    until(lambda: all(gpu_engine.left_of(run) == [] for run in runs))
