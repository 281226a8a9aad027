"""The worker's command with a Slurm host in its ``hosts.toml``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from slurm_cluster import Cluster

from compatgate.canary.hosts_file import read_hosts
from compatgate.canary.workloads.library import Library
from compatgate.service.app import Rooms
from compatgate.service.runs.queue.schemas import RunRequest

MANIFEST = """
name = "look"
description = "Looks"
command = ["/usr/bin/python3", "program.py"]
gpus = 1
[image]
inside = true
[limits]
memory = "100MiB"
[checks]
right = "it is right"
"""
HOSTS = """
[[host]]
name = "hpc"
executor = "slurm"
gpu = "A100-SXM4-80GB"
[host.slurm]
work = "{work}"
gres = "gpu:a100"
poll = 0.2
"""
PROGRAM = """
import sys
sys.path.insert(0, "lib")
import canary_lines as say
say.env(driver="535.104.05", gpus=[{"name": "NVIDIA A100-SXM4-80GB"}], versions={"cuda": "12.4"})
say.check("right", True)
"""


def test_the_worker_command_serves_a_slurm_host_of_its_hosts_file(
    rooms: Rooms,
    slurm: Cluster,
    tmp_path: Path,
) -> None:
    folder = tmp_path / "ours/look"
    folder.mkdir(parents=True)
    (folder / "workload.toml").write_text(MANIFEST)
    (folder / "program.py").write_text(PROGRAM)
    (tmp_path / "ours/suites.toml").write_text(
        '[made]\ndescription = "one"\nworkloads = ["look"]\n'
    )
    hosts = tmp_path / "hosts.toml"
    hosts.write_text(HOSTS.format(work=slurm.work))
    rooms.runs.catalogue = lambda: Library.open([tmp_path / "ours"])
    rooms.runs.queue.register("w1", read_hosts(hosts))
    (run,) = rooms.runs.submit(
        RunRequest("made", target="prod", stack={"cuda": "12.4"}), by="tester"
    )
    done = subprocess.run(
        [sys.executable, "-m", "compatgate", "worker", "--once", "--name", "w1",
         "--hosts", hosts, "--workloads", tmp_path / "ours",
         "--database", f"sqlite:///{tmp_path}/gate.db"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    shown = rooms.runs.show(run.id)
    assert (shown.run.state, shown.run.reason) == ("passed", ""), done.stderr
