"""The worker's command with a Kubernetes host in its ``hosts.toml``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from api_server import kubeconfig
from cluster_fake import Cluster
from cluster_script import ends, prints, runs, script

from compatgate.canary.hosts_file import read_hosts
from compatgate.canary.workloads.library import Library
from compatgate.service.app import Rooms
from compatgate.service.runs.queue.schemas import RunRequest

from .conftest import DIGEST, GPU

MANIFEST = """
name = "look"
description = "Looks"
command = ["python3", "program.py"]
gpus = 1
[image]
inside = true
[checks]
right = "it is right"
"""
HOSTS = """
[[host]]
name = "cluster"
executor = "kubernetes"
gpu = "A100-SXM4-80GB"
[host.kubernetes]
kubeconfig = "kubeconfig"
namespace = "canary"
"""
ENV = {"driver": "535.104.05", "gpus": [{"name": f"NVIDIA {GPU}"}], "versions": {"cuda": "12.4"}}


def test_the_worker_command_serves_a_kubernetes_host_of_its_hosts_file(
    rooms: Rooms,
    cluster: Cluster,
    tmp_path: Path,
) -> None:
    lines = ({"type": "env", **ENV}, {"type": "check", "name": "right", "ok": True})
    cluster.on_job = script(runs, prints(*map(json.dumps, lines)), ends())
    folder = tmp_path / "ours/look"
    folder.mkdir(parents=True)
    (folder / "workload.toml").write_text(MANIFEST)
    (folder / "program.py").write_text("")
    (tmp_path / "ours/suites.toml").write_text(
        '[made]\ndescription = "one"\nworkloads = ["look"]\n'
    )
    kubeconfig(tmp_path, cluster.url)
    hosts = tmp_path / "hosts.toml"
    hosts.write_text(HOSTS)
    rooms.runs.catalogue = lambda: Library.open([tmp_path / "ours"])
    rooms.runs.queue.register("w1", read_hosts(hosts))
    (run,) = rooms.runs.submit(
        RunRequest("made", target="prod", stack={"cuda": "12.4"}, image=DIGEST), by="tester"
    )
    done = subprocess.run(
        [sys.executable, "-m", "compatgate", "worker", "--once", "--name", "w1",
         "--hosts", hosts, "--workloads", tmp_path / "ours",
         "--database", f"sqlite:///{tmp_path}/gate.db"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    shown = rooms.runs.show(run.id)
    assert (shown.run.state, shown.run.reason) == ("passed", ""), done.stderr
    assert cluster.stored == {}
