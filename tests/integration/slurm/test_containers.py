"""Programs in containers: Slurm's own support of OCI with a real runtime, and a site's command."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from slurm_cluster import Cluster

from compatgate.canary.executors import Job, Status
from compatgate.canary.executors.slurm import SlurmExecutor
from compatgate.errors import BadInput, NotFound

Make = Callable[..., Job]
Executors = Callable[..., SlurmExecutor]
Start = Callable[..., Any]

DIGEST = "5a" * 32
IMAGE = f"registry.example/team/app:1.2@sha256:{DIGEST}"
_HOST_FOLDERS = ("/usr", "/bin", "/lib", "/lib64", "/etc")

LOOK = """
import os, socket
print(os.getcwd(), os.environ["HOME"])
open("/tmp/made", "w").close()
for path in ("/compatgate/made", "/made"):
    try:
        open(path, "w")
    except OSError as error:
        print(path, error.strerror)
try:
    socket.create_connection(("198.51.100.1", 9), 1)
except OSError as error:
    print("network", error.strerror)
print([line.split()[1] for line in open("/proc/self/status") if line[:6] in ("CapEff", "NoNewP")])
print(os.listdir("/sys/class/net"))
"""


@pytest.fixture
def bundles(slurm: Cluster) -> str:
    """Where the site unpacks images: one that has the programs of this machine."""
    if shutil.which("runc") is None or os.getuid() != 0:
        pytest.skip("no runc, or not root: install Debian's runc")
    bundle = slurm.folder / "bundles" / DIGEST
    if not bundle.exists():
        (bundle / "rootfs").mkdir(parents=True)
        subprocess.run(["runc", "spec"], cwd=bundle, check=True)
        config = json.loads((bundle / "config.json").read_text())
        config["mounts"] += [
            {"destination": path, "type": "bind", "source": path, "options": ["rbind", "ro"]}
            for path in _HOST_FOLDERS
            if Path(path).exists()
        ]
        (bundle / "config.json").write_text(json.dumps(config))
    return f"{slurm.folder}/bundles/{{digest}}"


def test_a_program_runs_confined_in_the_bundle_of_its_image(
    executor: Executors, job: Make, start: Start, bundles: str
) -> None:
    on = executor(container="oci", bundle=bundles)
    assert not on.development
    started = start(on, job(LOOK, image=IMAGE))
    assert started.handle.image == IMAGE
    assert started.to_the_end() == Status("exited", 0), started.output
    assert started.output.decode().splitlines() == [
        "/compatgate /tmp",
        "/compatgate/made Read-only file system",
        "/made Read-only file system",
        "network Network is unreachable",
        "['0000000000000000', '1']",
        "['lo']",
    ]
    assert [p.name for p in (on._work.of(started.job) / "tmp").iterdir()] == ["made"]


def test_a_program_in_a_bundle_gives_its_exit_status(
    executor: Executors, job: Make, start: Start, bundles: str
) -> None:
    started = start(
        executor(container="oci", bundle=bundles), job("raise SystemExit(4)", image=IMAGE)
    )
    assert started.to_the_end() == Status("exited", 4), started.output


def test_an_image_without_a_bundle_is_not_found(
    executor: Executors, job: Make, start: Start, bundles: str
) -> None:
    other = f"registry.example/team/app@sha256:{'7b' * 32}"
    with pytest.raises(NotFound, match=r"no OCI bundle of registry\.example"):
        start(executor(container="oci", bundle=bundles), job("", image=other))


def test_the_sites_command_gets_the_image_and_the_folders(
    executor: Executors, job: Make, start: Start, slurm: Cluster
) -> None:
    tool = slurm.folder / "tool"
    tool.write_text('#!/bin/sh\necho "$1 $2 $3"\ncd "$2"\nshift 3\nexec "$@"\n')
    tool.chmod(0o755)
    fetched = slurm.folder / "fetched"
    on = executor(
        container="wrapper",
        wrapper=(str(tool), "docker://{image}", "{files}", "{scratch}:{folder}"),
        fetch=("/usr/bin/touch", f"{fetched}-{{name}}"),
    )
    started = start(on, job("print('inside')", image=IMAGE))
    assert started.to_the_end() == Status("exited", 0), started.output
    folder = on._work.of(started.job)
    assert started.output.decode().splitlines() == [
        f"docker://{IMAGE} {folder}/files {folder}/tmp:/compatgate",
        "inside",
    ]
    assert Path(f"{fetched}-compatgate-{started.job.run}-1-made-0").exists()


def test_an_image_that_cannot_be_fetched_is_lost_with_the_tools_last_words(
    executor: Executors, job: Make, start: Start
) -> None:
    fetch = ("/bin/sh", "-c", "echo 'FATAL: no such manifest' >&2; exit 1")
    on = executor(container="wrapper", wrapper=("{image}",), fetch=fetch)
    status = start(on, job("", image=IMAGE)).until("lost")
    assert status.reason.startswith("it ended on n")
    assert status.reason.endswith("FATAL: no such manifest")


def test_a_host_without_containers_runs_no_image(
    executor: Executors, job: Make, start: Start
) -> None:
    on = executor()
    assert on.development
    with pytest.raises(BadInput, match="without containers"):
        start(on, job("", image=IMAGE))
