"""How long a run is expected to take before it starts: learned from runs before it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from canary_runs import GPU, host

from compatgate.canary.run import Origin, StepResult
from compatgate.kit import clock
from compatgate.service.app import Rooms
from compatgate.service.runs.queue.queue import DatabaseQueue


@pytest.fixture
def end(
    rooms: Rooms, queue: DatabaseQueue, submit: Callable[..., str], time: Any
) -> Callable[..., str]:
    """A run of one step on a host, of which each process took some seconds; its id."""
    hosts = [host("a100-1"), host("a100-2")]
    queue.register("w1", hosts)
    (gemm,) = rooms.runs.catalogue().of_suite("dl-core")

    def go(seconds: float, where: str = "a100-1", **how: Any) -> str:
        run = submit("dl-core", host=where)
        lease = queue.lease("w1", hosts)
        assert lease is not None
        assert lease.run.id == run
        digest = "sha256:before" if how.get("changed") else gemm.digest
        begin = clock.now()
        result = StepResult(
            "gemm-0",
            "gemm",
            0,
            "passed",
            exit_code=how.get("status", 0),
            started_at=begin,
            finished_at=begin + timedelta(seconds=seconds),
            origin=Origin(digest, GPU, "docker", False),
        )
        queue.record(lease, result)
        time.forward(seconds=seconds + how.get("besides", 0))
        queue.finish(lease, "passed", "it passed", None)
        return run

    return go


@pytest.fixture
def expected(rooms: Rooms, submit: Callable[..., str]) -> Callable[..., float | None]:
    """The seconds that a run is expected to take when it is submitted."""

    def ask(**fields: Any) -> float | None:
        run = submit("dl-core", **fields)
        left = rooms.runs.get(run).left_s
        rooms.runs.cancel(run, by="tester")
        return left

    return ask


def test_a_host_knows_its_own_speed_and_another_what_the_sku_takes(
    end: Callable[..., str], expected: Callable[..., float | None]
) -> None:
    assert expected() is None
    for seconds in (10, 12, 14):
        end(seconds)
    for seconds in (40, 42, 44):
        end(seconds, "a100-2")
    assert expected(host="a100-1") == 12
    assert expected(host="a100-2") == 42
    assert expected() == 27, "any of them may take it"


def test_a_program_that_has_changed_is_not_what_it_was(
    end: Callable[..., str], expected: Callable[..., float | None]
) -> None:
    for _ in range(5):
        end(600, changed=True)
    assert expected(host="a100-1") == 600, "nothing else is known"
    end(30, "a100-2")
    assert expected(host="a100-1") == 30


def test_a_process_that_broke_off_says_nothing_about_the_next(
    end: Callable[..., str], expected: Callable[..., float | None]
) -> None:
    end(100)
    end(1, status=139)
    assert expected(host="a100-1") == 100


def test_what_a_run_takes_besides_its_program_counts_but_no_pulled_image(
    end: Callable[..., str], expected: Callable[..., float | None]
) -> None:
    end(2, besides=90)
    end(2, besides=3)
    assert expected(host="a100-1") == pytest.approx(5)
    assert expected(host="a100-2") == pytest.approx(2), "another host may be quicker"
