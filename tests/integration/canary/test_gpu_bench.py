"""bench/gpu.py takes the way of a machine with a GPU; the driver's library is a stand-in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from canary_programs import compile_library

from compatgate.resources import canary_dir

BENCH = canary_dir().parent / "bench" / "gpu.py"
STAND_IN = Path(__file__).parent / "stand_ins" / "cuda.c"


def test_a_gpu_is_measured_beside_its_published_peak(tmp_path: Path) -> None:
    library, out = tmp_path / "libcuda.so.1", tmp_path / "out"
    settings = {"GPUS": 1, "CUDA": 12040, "NEWEST": 84, "BROKEN": 0, "COLD": 20_000, "WARM": 0}
    compile_library(STAND_IN, library, **settings)
    chosen = ["memory-bandwidth", "ptx-jit", "nccl-allreduce"]
    done = subprocess.run(
        [
            sys.executable,
            str(BENCH),
            *("--out", str(out), "--baselines", "1", "--repetitions", "5", "--value-ms", "5"),
            *(part for name in chosen for part in ("--workload", name)),
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "CUDACXX": "/nowhere/nvcc"},
        check=False,
        timeout=200,
    )
    assert done.returncode in (0, 1, 3), done.stderr
    page = (out / "results.md").read_text()
    assert "NVIDIA A100-SXM4-80GB" in page
    assert "| `memory-bandwidth` device-copy |" in page
    assert "| 2039 GB/s | NVIDIA A100 datasheet, published |" in page
    assert "- `nccl-allreduce`: it needs 2 GPUs, and 1 is here" in page
    said = json.loads((out / "judged.json").read_text())
    labels = [one["label"] for one in said]
    assert labels == ["baseline-1", "equal", "baseline-1", "equal", "no-jit-cache"]
    assert {one["word"] for one in said if one["kind"] == "baseline"} == {"as expected"}
    ran = [json.loads(line) for line in (out / "runs.jsonl").read_text().splitlines()]
    assert ran[-1]["workload"] == "memory-bandwidth"
    assert ran[-2]["environment"] == {"CUDA_CACHE_DISABLE": "1"}
