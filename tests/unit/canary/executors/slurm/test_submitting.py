"""What is handed to Slurm: arguments, script, container; and what its refusals mean."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatgate.canary.executors import Job, check_single_machine
from compatgate.canary.executors.slurm.commands import explain_command_error, job_name
from compatgate.canary.executors.slurm.containers import (
    ContainerPlace,
    confine_config,
    make_enroot_uri,
    make_fetch_command,
    make_run_command,
    prepare_image,
)
from compatgate.canary.executors.slurm.submission import (
    make_batch_script,
    make_sbatch_arguments,
    time_limit,
)
from compatgate.canary.hosts import Slurm
from compatgate.canary.workload import ImageSpec, Limits, Workload
from compatgate.errors import BadInput, InfrastructureError

DIGEST = f"sha256:{'5a' * 32}"
IMAGE = f"registry.example:5000/team/app@{DIGEST}"
PLACE = ContainerPlace(IMAGE, "/shared/run_1/1-gemm-0", "compatgate-run_1-1-gemm-0")
WORKLOAD = Workload("gemm", "", ("./gemm",), ImageSpec(inside=True), gpus=2, timeout_s=600,
                    limits=Limits(memory=3 << 30, cpus=2.5))  # fmt: skip
JOB = Job("run_1", 1, "gemm-0", WORKLOAD, image=IMAGE)


def test_a_job_asks_for_what_its_workload_needs_and_no_more() -> None:
    slurm = Slurm("/shared", partition="gpu", gres="gpu:a100", extra=("--reservation=canary",))
    seconds = time_limit(JOB, slurm, looks=False)
    asked = make_sbatch_arguments(JOB, slurm, "/shared/run_1/1-gemm-0", seconds)
    for part in ("--gres=gpu:a100:2", "--mem=3072M", "--cpus-per-task=3", "--time=11",
                 "--no-requeue", "--partition=gpu", "--nodes=1"):  # fmt: skip
        assert part in asked
    assert asked[-1] == "--reservation=canary"
    assert not any(part.startswith(("--account", "--qos", "--constraint")) for part in asked)


def test_time_to_fetch_an_image_is_added_to_slurms_limit() -> None:
    slurm = Slurm("/s", gres="gpu:a100", container="pyxis")
    seconds = time_limit(JOB, slurm, looks=False)
    assert "--time=41" in make_sbatch_arguments(JOB, slurm, "/s/f", seconds)


@pytest.mark.parametrize("run", ["../x", "a b", "a\n#SBATCH --uid=0", "", "-x"])
def test_a_run_whose_id_is_no_name_is_refused(run: str) -> None:
    with pytest.raises(BadInput):
        job_name(run)


@given(st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8")), min_size=1))
def test_no_argument_becomes_shell(words: list[str]) -> None:
    command = ("printf", r"%s\0", *words)
    job = msgspec.structs.replace(JOB, workload=msgspec.structs.replace(WORKLOAD, command=command))
    script = make_batch_script(job, Slurm("/shared"), PLACE)
    call = script.partition("/files && exec ")[2].rpartition(") >&3 2>&4")[0]
    done = subprocess.run(["bash", "-c", call], capture_output=True, check=True)
    assert done.stdout.decode().split("\0")[:-1] == words


def test_a_script_hands_no_ticket_on_and_looks_before_it_leaps() -> None:
    script = make_batch_script(JOB, Slurm("/shared"), ContainerPlace("", "/shared/it's", "mark"))
    assert "unset SLURM_JWT" in script
    assert "cd '/shared/it'\"'\"'s' || exit" in script
    assert subprocess.run(["bash", "-n"], input=script.encode(), check=True).returncode == 0


@pytest.mark.parametrize(
    ("image", "uri"),
    [
        (IMAGE, f"docker://registry.example:5000#team/app@{DIGEST}"),
        (f"registry.example/app:1@{DIGEST}", f"docker://registry.example#app@{DIGEST}"),
        (f"ubuntu@{DIGEST}", f"docker://library/ubuntu@{DIGEST}"),
    ],
)
def test_images_are_named_as_enroot_wants_them(image: str, uri: str) -> None:
    assert make_enroot_uri(image) == uri


def test_pyxis_fetches_before_time_counts_and_then_uses_the_same_container() -> None:
    slurm = Slurm("/shared", container="pyxis")
    fetch = make_fetch_command(slurm, PLACE)
    run = make_run_command(slurm, PLACE, ["./gemm"], 1)
    assert fetch[0] == run[0] == "srun"
    assert (fetch[-1], run[-1]) == ("true", "./gemm")
    assert fetch[:-1] == run[:-1]
    assert "--container-name=compatgate-run_1-1-gemm-0" in run
    mounts = "/shared/run_1/1-gemm-0/files:/compatgate:ro,/shared/run_1/1-gemm-0/tmp:/tmp"
    assert f"--container-mounts={mounts}" in run


def test_a_sites_command_is_spread_over_nodes_by_srun() -> None:
    slurm = Slurm("/shared", container="wrapper", wrapper=("tool", "{image}"))
    assert make_run_command(slurm, PLACE, ["p"], 1) == ["tool", IMAGE, "p"]
    assert make_run_command(slurm, PLACE, ["p"], 2)[0] == "srun"
    assert make_fetch_command(slurm, PLACE) == []


def test_a_bundle_keeps_what_brings_the_gpus_and_loses_the_rest() -> None:
    site = {
        "root": {"path": "rootfs"},
        "process": {"capabilities": {"effective": ["CAP_SYS_ADMIN"]}, "cwd": "/"},
        "mounts": [{"destination": "/proc"}, {"destination": "/tmp"}],
        "hooks": {"createRuntime": [{"path": "/usr/bin/nvidia-ctk"}]},
        "linux": {"namespaces": [{"type": "mount"}, {"type": "network", "path": "/host"}]},
    }
    made = confine_config(site, Path("/bundles/x"), PLACE)
    assert made["root"] == {"path": "/bundles/x/rootfs", "readonly": True}
    assert made["process"]["capabilities"] == {}
    assert made["process"]["noNewPrivileges"]
    assert [m["destination"] for m in made["mounts"]] == ["/proc", "/compatgate", "/tmp"]
    assert made["hooks"] == site["hooks"]
    assert made["linux"]["namespaces"] == [{"type": "mount"}, {"type": "network"}]


@pytest.mark.parametrize(
    ("said", "error", "field"),
    [
        ("sbatch: error: invalid partition specified: x\nsbatch: error: Batch job submission "
         "failed: Invalid partition name specified", BadInput, "partition"),
        ("sbatch: error: Batch job submission failed: Invalid account or account/partition "
         "combination specified", BadInput, "account"),
        ("sbatch: error: Batch job submission failed: Invalid qos specification", BadInput, "qos"),
        ("sbatch: error: Batch job submission failed: Requested node configuration is not "
         "available", BadInput, "host"),
        ("sbatch: error: Batch job submission failed: Unable to contact slurm controller "
         "(connect failure)", InfrastructureError, "host"),
        ("sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job "
         "submit limit, user's size and/or time limits)", InfrastructureError, "host"),
        ("sbatch: error: Munge encode failed: Failed to connect", InfrastructureError, "host"),
        ("", InfrastructureError, "host"),
    ],
)  # fmt: skip
def test_only_what_is_known_to_be_wrong_is_not_tried_again(
    said: str, error: type[Exception], field: str
) -> None:
    found = explain_command_error("sbatch", said)
    assert type(found) is error
    assert found.field == field
    assert "sbatch: error" not in found.problem


def test_nothing_is_built_on_a_cluster() -> None:
    built = msgspec.structs.replace(WORKLOAD, image=ImageSpec(context="."))
    job = msgspec.structs.replace(JOB, workload=built)
    with pytest.raises(BadInput, match="a cluster does not build images"):
        prepare_image(job, Slurm("/s", container="pyxis"), "hpc", lambda doing, share: None)
    assert prepare_image(JOB, Slurm("/s", container="pyxis"), "hpc", lambda *_: None) == IMAGE


def test_a_workload_for_several_nodes_is_refused_where_there_is_one() -> None:
    job = msgspec.structs.replace(JOB, workload=msgspec.structs.replace(WORKLOAD, nodes=4))
    with pytest.raises(BadInput, match="gemm runs on 4 nodes, but stage is one machine"):
        check_single_machine(job, "stage")
