"""Lockfiles and bills of materials through the real command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

LOCKS = Path(__file__).parents[1] / "unit/discovery/lockfiles/files"
POOL = ["--pool", "driver=580.95.05,gpu=A100-SXM4-80GB"]


def compatgate(*arguments: str, stdin: str | None = None):
    return subprocess.run(
        [sys.executable, "-m", "compatgate", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("name", ["requirements.txt", "uv.lock", "pdm.lock", "pylock.toml"])
def test_the_same_project_has_the_same_verdict_in_every_lock(name):
    lock = str(LOCKS / "torch-2.4" / name)
    answer = compatgate("check", *POOL, "--lock", lock, "--format", "json")
    verdict = json.loads(answer.stdout)
    assert answer.returncode == 0, answer.stderr
    assert verdict["stack"]["torch"] == "2.4.1"
    assert verdict["stack"]["cudnn"] == "9.1.0.70+cu12"
    assert verdict["verdict"] == "pass"


def test_a_cudnn_major_that_is_stated_wins_over_the_lock_and_is_denied():
    lock = str(LOCKS / "torch-2.4" / "uv.lock")
    answer = compatgate("check", *POOL, "--lock", lock, "--stack", "cudnn=8.9.7+cu12")
    assert answer.returncode == 1
    assert "CG402" in answer.stdout


def test_builds_by_conda_are_not_denied_for_what_holds_of_wheels():
    lock = str(LOCKS / "conda" / "explicit.txt")  # jax 0.4.31 for CUDA 12.0, which has no wheel
    answer = compatgate("check", *POOL, "--lock", lock)
    assert answer.returncode == 3
    assert "FAIL" not in answer.stdout
    assert "was built by a channel of conda" in " ".join(answer.stdout.split())
    stated = compatgate("check", *POOL, "--lock", lock, "--stack", "arch=sm_80", "--format", "json")
    assert json.loads(stated.stdout)["verdict"] != "fail"


def test_the_cuda_that_a_lock_leaves_open_is_assumed_and_said():
    lock = str(LOCKS / "onnxruntime" / "uv.lock")
    answer = compatgate("check", *POOL, "--lock", lock)
    assert answer.returncode == 0, answer.stdout
    assert "onnxruntime-gpu 1.20.2 is assumed to run with CUDA 12.0, its oldest" in answer.stdout


def test_a_lock_of_the_package_index_is_judged_as_its_wheel_and_says_so(tmp_path):
    lock = tmp_path / "requirements.txt"
    lock.write_text("torch==2.11.0\n")
    answer = compatgate("check", *POOL, "--lock", str(lock))
    assert answer.returncode == 0, answer.stdout
    said = " ".join(answer.stdout.split())
    assert "torch 2.11.0 is assumed to be the package index's wheel, built for CUDA 13.0" in said


@pytest.mark.parametrize("stated", ["cuda=12.1", "torch=2.4.1+cu121"])
def test_what_a_lock_leaves_open_can_be_stated(tmp_path, stated):
    lock = tmp_path / "requirements.txt"
    lock.write_text("--index-url https://wheels.example/simple\ntorch==2.4.1\n")
    answer = compatgate("check", *POOL, "--lock", str(lock))
    assert answer.returncode == 3
    assert "does not say which CUDA" in answer.stdout
    answer = compatgate("check", *POOL, "--lock", str(lock), "--stack", stated)
    assert answer.returncode == 0, answer.stdout


def test_a_lock_is_read_for_the_processor_of_the_target(tmp_path):
    lock = tmp_path / "requirements.txt"
    lock.write_text(
        'torch==2.4.1+cu121 ; platform_machine == "x86_64"\n'
        'torch==2.5.1+cu121 ; platform_machine == "aarch64"\n'
    )
    (tmp_path / "target.yaml").write_text(
        "apiVersion: compatgate.dev/v1\nkind: Target\nmetadata: {name: hoppers}\nspec:\n"
        "  pools: [{name: gh, gpu: GH200, driver: 570.124.06, cpu: aarch64}]\n"
    )
    gate = ("--database", str(tmp_path / "gate.db"))
    imported = compatgate("matrix", "import", str(tmp_path / "target.yaml"), *gate)
    assert imported.returncode == 0, imported.stderr
    answer = compatgate("check", "--target", "hoppers", *gate, "--lock", str(lock))
    assert "PyTorch 2.5.1+cu121 on target hoppers" in answer.stdout, answer.stderr


@pytest.mark.parametrize(
    ("text", "status"),
    [("", 3), ("{{ requirements }}\n", 3), ("\x00\x01", 2), ("torch=2.4.1 # not a pin\n", 2)],
)
def test_an_empty_templated_or_unreadable_lock_never_passes(tmp_path, text, status):
    lock = tmp_path / "requirements.txt"
    lock.write_text(text)
    answer = compatgate("check", *POOL, "--lock", str(lock))
    assert answer.returncode == status, answer.stdout
    assert answer.stderr.startswith("error: ")
    assert len(answer.stderr.splitlines()) == 1


def test_a_bill_of_materials_is_a_stack(tmp_path):
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "components": [
            {
                "type": "library",
                "bom-ref": name,
                "name": name,
                "version": version,
                "purl": f"pkg:pypi/{name}@{version.replace('+', '%2B')}",
            }
            for name, version in (("torch", "2.5.1+cu121"), ("numpy", "2.1.0"))
        ],
    }
    path = tmp_path / "bom.json"
    path.write_text(json.dumps(bill))
    answer = compatgate(
        "check", "--pool", "driver=580.95.05,gpu=GeForce-RTX-5090", "--sbom", str(path)
    )
    assert answer.returncode == 1, answer.stderr
    assert "CG405" in answer.stdout


def test_inspect_shows_a_lock_with_where_each_part_was_seen():
    lock = str(LOCKS / "torch-2.4" / "uv.lock")
    shown = json.loads(compatgate("inspect", lock, "--format", "json").stdout)
    assert shown["stack"]["torch"] == "2.4.1"
    assert {"component", "version", "origin", "confidence"} == set(shown["observations"][0])


@pytest.mark.parametrize("lock", ["torch-2.4/uv.lock", "onnxruntime/uv.lock", "conda/explicit.txt"])
def test_an_inspected_lock_has_the_same_verdict(tmp_path, lock):
    inspected = tmp_path / "lock.json"
    inspected.write_text(compatgate("inspect", str(LOCKS / lock), "--format", "json").stdout)
    ours = compatgate("check", *POOL, "--lock", str(LOCKS / lock))
    theirs = compatgate("check", *POOL, "--probe", str(inspected))
    assert theirs.returncode == ours.returncode
    assert theirs.stdout.splitlines()[0] == ours.stdout.splitlines()[0]
