"""What a job of Slurm sees of its node's GPUs, by the shell that runs on the node."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from compatgate.canary.executors.host_watch import (
    HostObservation,
    JobHealth,
    make_function,
    watch_nodes,
)
from compatgate.catalog import load_facts

XID = "[  100.5] NVRM: Xid (PCI:0000:9b:00): 79, pid=7, GPU has fallen off the bus."
OLD = "[   10.5] NVRM: Xid (PCI:0000:9b:00): 79, pid=7, GPU has fallen off the bus."


def gpu(number: int, **fields: str) -> str:
    elements = "".join(f"<{name}>{value}</{name}>" for name, value in fields.items())
    return f'<gpu id="00000000:9{"abcd"[number]}:00.0"><uuid>GPU-{number}</uuid>{elements}</gpu>'


def answer(*gpus: str) -> str:
    driver = "<driver_version>580.95.05</driver_version>"
    return f"<nvidia_smi_log>{driver}{''.join(gpus)}</nvidia_smi_log>"


B = gpu(1)
TWO = answer(gpu(0), B)
SAME = (f"{OLD}\n", f"{OLD}\n")
SICK = gpu(1, gpu_recovery_action="Reset")
Look = Callable[..., HostObservation]


@pytest.fixture
def look(tmp_path: Path) -> Look:
    """Run the script's function before and after, with programs that print what is given."""
    table = load_facts([]).xid

    def go(
        before: str,
        after: str | None,
        *,
        gpus: int = 1,
        listed: str = "",
        kernel: tuple[str, str] = ("boot\n", "boot\n"),
    ) -> HostObservation:
        folder = tmp_path / "job"
        folder.mkdir()
        programs = tmp_path / "bin"
        programs.mkdir()
        for name, texts in (("nvidia-smi", (before, after)), ("dmesg", kernel)):
            (programs / f"{name}.1").write_text(texts[0])
            (programs / f"{name}.2").write_text(texts[1] or "")
            program = programs / name
            program.write_text(
                f"#!/bin/sh\nf={programs}/{name}\n"
                "[ -s $f.2 ] && [ -e $f.asked ] && f=$f.2 || f=$f.1\n"
                f"touch {programs}/{name}.asked\ncat $f\ngrep -q . $f\n"
            )
            program.chmod(0o755)
        script = make_function(1) + "look before\n" + ("look after\n" if after is not None else "")
        env = {"PATH": f"{programs}:/usr/bin:/bin", "SLURM_JOB_GPUS": listed}
        subprocess.run(["bash", "-c", script], cwd=folder, env=env, check=True, timeout=60)
        jobs = JobHealth()
        with watch_nodes(jobs, table)((0,)) as watching:
            jobs.started(folder, nodes=1, gpus=gpus)
        return watching()

    return go


@pytest.mark.parametrize(
    ("asked", "state", "why"),
    [
        ({"before": answer(B), "after": answer(B)}, "healthy", ""),
        ({"before": TWO, "after": TWO, "listed": "1"}, "healthy", ""),
        (
            {"before": TWO, "after": answer(SICK, gpu(0)), "listed": "0"},
            "healthy",
            "",
        ),
        ({"before": answer(B), "after": answer(SICK)}, "sick", ""),
        ({"before": answer(B), "after": "No devices were found"}, "sick", ""),
        ({"before": answer(B), "after": None}, "healthy", "ended before the second look"),
        (
            {"before": "NVIDIA-SMI has failed", "after": answer(B)},
            "unknown",
            "NVIDIA-SMI has failed",
        ),
        ({"before": TWO, "after": TWO}, "unknown", "which of its GPUs"),
        (
            {"before": answer(B), "after": answer(B), "kernel": (OLD, f"{OLD}\n{XID}\n")},
            "sick",
            "",
        ),
        (
            {"before": answer(B), "after": answer(B), "kernel": SAME},
            "healthy",
            "",
        ),
        ({"before": answer(B), "after": answer(B), "kernel": ("", "")}, "healthy", "kernel log"),
    ],
)
def test_a_node_is_judged_by_both_looks(look: Look, asked: dict, state: str, why: str) -> None:  # type: ignore[type-arg]
    found = look(**asked)
    assert (found.state, why in found.reason) == (state, True), found


def test_a_step_without_gpus_is_not_watched_and_a_job_that_never_began_is_unknown() -> None:
    watch = watch_nodes(JobHealth(), load_facts([]).xid)
    with watch(()) as nothing, watch((0,)) as lost:
        pass
    assert nothing().state == "unobserved"
    assert lost().state == "unknown"
