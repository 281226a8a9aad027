"""What bench/gpu.py does to PyTorch makes programs slower, never wrong; PyTorch is on the CPU."""

from __future__ import annotations

import pytest
from canary_programs import failed, keeps_to_its_manifest
from torch_programs import run_with_torch

from compatgate.canary.protocol import read_report
from compatgate.canary.workloads.library import read_workload
from compatgate.resources import canary_dir

HANDICAPPED = canary_dir().parent / "bench" / "handicapped.py"


@pytest.mark.parametrize(
    ("handicap", "name"),
    [
        ("small-tiles", "gemm"),
        ("wide-products", "gemm"),
        ("no-autotune", "conv"),
        ("math-attention", "attention"),
    ],
)
def test_a_handicapped_program_still_reports_all_and_is_right(handicap: str, name: str) -> None:
    few = ["--device", "cpu", "--repetitions", "1", "--warmup", "0"]
    program = str(canary_dir() / name / "program.py")
    done = run_with_torch([HANDICAPPED, handicap, program, *few])
    assert done.returncode == 0, done.stderr.decode()
    report = read_report([done.stdout], read_workload(canary_dir() / name))
    keeps_to_its_manifest(name, report)
    assert failed(report) == {}
