"""A run counts with the gate's own definition of its suite only, and with a right clock."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from canary_runs import DRIVER, GPU, evidence, host

from compatgate.core.binding import Binding, define_suite
from compatgate.errors import BadInput
from compatgate.kit.clock import read_clocks
from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms
from compatgate.service.runs.queue.queue import DatabaseQueue

from .conftest import take


@pytest.fixture
def candidate(
    rooms: Rooms, by: Authorship, target_body: Callable[..., dict[str, Any]]
) -> Callable[[], str]:
    """An entry that one passed run of the suite blesses; its status."""
    pool = {"name": "a100", "gpu": GPU, "driver": DRIVER}
    canary = {"require": True, "suites": ["smoke"], "promote": "automatic"}
    body = target_body("prod", pools=[pool], policy={"canary": canary})
    rooms.matrix.change("Target", "prod", body, by)
    components = {"driver": ">=535.104.05", "cuda": "12.4.*", "torch": "~=2.4.0"}
    spec = {"targets": ["prod"], "components": components, "status": "candidate"}
    rooms.matrix.create("Entry", {"metadata": {"name": "torch24"}, "spec": spec}, by)
    return lambda: rooms.snapshots.refresh().entries["torch24"].status


def test_a_gutted_suite_blesses_no_candidate(
    queue: DatabaseQueue, submit: Callable[..., str], candidate: Callable[[], str]
) -> None:
    submit()
    lease = take(queue)
    assert lease.definition
    whole = lease.definition.workloads
    gutted = define_suite({**whole, "gemm": "sha256:without-checks"})
    bound = Binding(suite=gutted.digest, workloads=gutted.workloads)
    with pytest.raises(BadInput) as refused:
        queue.finish(lease, "passed", "all passed", evidence(lease, bound=bound))
    assert f"is {gutted.digest}, the gate's is {lease.definition.digest}" in str(refused.value)
    assert "workload gemm changed" in str(refused.value)
    assert candidate() == "candidate"
    bound = Binding(suite=lease.definition.digest, workloads=whole)
    queue.finish(lease, "passed", "all passed", evidence(lease, bound=bound))
    assert candidate() == "blessed"


@pytest.mark.parametrize(("off", "said"), [(-600, "600 s behind"), (600, "600 s ahead of")])
def test_a_clock_that_is_not_the_database_s_takes_no_run(
    rooms: Rooms, submit: Callable[..., str], monkeypatch: pytest.MonkeyPatch, off: int, said: str
) -> None:
    """SQLite has no clock of its own: its file is on this machine."""
    submit()
    wall, steady = read_clocks()
    shifted = (wall + timedelta(seconds=off), steady)
    monkeypatch.setattr("compatgate.service.runs.queue.queue.read_clocks", lambda: shifted)
    if rooms.gate.database.is_sqlite:
        assert rooms.runs.queue.lease("w2", [host()])
        return
    with pytest.raises(BadInput, match=f"this machine's clock is {said} the database's"):
        rooms.runs.queue.lease("w2", [host()])
