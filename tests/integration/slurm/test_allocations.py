"""Steps of a run that share one allocation, and what their jobs see of the node's GPU."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from slurm_cluster import Cluster

from compatgate.canary.executors import Job, PreparedJob, Status
from compatgate.canary.executors.host_watch import watch_nodes
from compatgate.canary.executors.slurm import SlurmExecutor
from compatgate.canary.hosts import Host, Slurm
from compatgate.catalog import load_facts
from compatgate.errors import InfrastructureError

Start = Callable[..., Any]
WHERE = "import os; print(os.environ['SLURMD_NODENAME'], os.environ['SLURM_JOB_ID'])"
LONG = "import time; print('begun', flush=True); time.sleep(600)"
SMI = """#!/bin/sh
cat <<'END'
<nvidia_smi_log><driver_version>580.95.05</driver_version>
<gpu id="00000000:9B:00.0"><uuid>GPU-1</uuid></gpu></nvidia_smi_log>
END
"""


@pytest.fixture
def executor(slurm: Cluster, tmp_path: Path, request: pytest.FixtureRequest) -> SlurmExecutor:
    """An executor with shared allocations, on nodes that have an nvidia-smi."""
    commands = tmp_path / "commands"
    commands.mkdir()
    for name in ("sbatch", "scontrol", "squeue", "scancel", "sacct", "srun"):
        if found := shutil.which(name):
            (commands / name).symlink_to(found)
    (commands / "nvidia-smi").write_text(SMI)
    (commands / "nvidia-smi").chmod(0o755)
    settings = Slurm(
        work=str(slurm.work), gres="gpu:a100", poll=0.2, allocation="run",
        allocation_time=getattr(request, "param", "10m"), commands=str(commands),
    )  # fmt: skip
    gpu = "A100-SXM4-80GB"
    return SlurmExecutor(Host("stage", executor="slurm", gpu=gpu, health="node", slurm=settings))


def test_the_steps_of_a_run_share_a_node_and_a_step_that_is_killed_ends_their_allocation(
    slurm: Cluster, executor: SlurmExecutor, job: Callable[..., Job], made: Any, start: Start
) -> None:
    first = job(WHERE)
    steps = [replace(first, step=f"made-{number}") for number in range(3)]
    steps[1] = replace(steps[1], workload=made(f"{WHERE}; raise SystemExit(3)"))
    watch = watch_nodes(executor.health, load_facts([]).xid)
    places, ends = set(), []
    for step in steps:
        with watch((0,)) as watching:
            begun = start(executor, step)
            ends.append(begun.to_the_end())
        observed = watching()
        assert (observed.state, observed.body is not None) == ("healthy", True), observed
        places.add(begun.output)
        executor.kill(begun.handle)
    assert ends == [Status("exited", 0), Status("exited", 3), Status("exited", 0)]
    assert len(places) == 1
    assert slurm.jobs() == [f"compatgate-{first.run}"]
    long = start(executor, replace(first, step="made-3", workload=made(LONG)))
    long.until("running")
    executor.kill(long.handle)
    assert long.until("exited").reason == "killed"
    after = start(executor, replace(first, step="made-4"))
    assert after.to_the_end() == Status("exited", 0)
    assert after.output not in places
    executor.clean(first.run)
    assert slurm.jobs() == []


def test_an_allocation_that_ends_early_loses_the_step_and_another_attempt_gets_its_own(
    slurm: Cluster, executor: SlurmExecutor, job: Callable[..., Job], made: Any, start: Start
) -> None:
    first = start(executor, job(LONG))
    first.until("running")
    slurm.ask("scancel", first.handle.id)
    assert "its allocation ended (cancelled) while the step ran" in first.until("lost").reason
    again = replace(first.job, attempt=2, workload=made(WHERE))
    assert start(executor, again).to_the_end() == Status("exited", 0)


def test_blocks_of_a_pair_share_an_allocation_and_none_straddles_two(
    slurm: Cluster, executor: SlurmExecutor, job: Callable[..., Job], start: Start
) -> None:
    assert executor.runs_pairs
    first = job(WHERE)
    blocks = [replace(first, step=f"made-0-pair{n}-{arm}") for n in (1, 2, 3) for arm in "AB"]
    with executor.hold([PreparedJob(first, "none")]) as held:
        places = set()
        for block in blocks[:4]:
            begun = start(held, block)
            assert begun.to_the_end() == Status("exited", 0)
            places.add(begun.output)
        assert len(places) == 1, "one node, one allocation"
        slurm.ask("scancel", begun.handle.id)
        deadline = time.monotonic() + 60
        while slurm.jobs():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        with pytest.raises(InfrastructureError, match="ended between two blocks"):
            start(held, blocks[4])
    executor.clean(first.run)
    assert slurm.jobs() == []


@pytest.mark.parametrize("executor", ["1m"], indirect=True)
def test_an_allocation_always_has_room_for_a_whole_pair(
    executor: SlurmExecutor, job: Callable[..., Job], start: Start
) -> None:
    first = job(WHERE)
    with executor.hold([PreparedJob(first, "none")]) as held:
        places = []
        for pair in (1, 2):
            blocks = [replace(first, step=f"made-0-pair{pair}-{arm}") for arm in "AB"]
            held.expect([PreparedJob(block, "none") for block in blocks])
            for block in blocks:
                begun = start(held, block)
                assert begun.to_the_end() == Status("exited", 0)
                places.append(begun.handle.id)
    assert places[0] == places[1], "both blocks of a pair"
    assert places[2] == places[3]
    assert places[1] != places[2], "the first allocation had no room for another pair"
    executor.clean(first.run)
