"""Run every canary program that runs without a GPU, and every seeded fault; write the table.

    python3 bench/canary_cpu.py --python .venv-torch/bin/python [--frameworks PYTHON] [--out FILE]

`--python` has PyTorch, `--frameworks` JAX, TensorFlow and ONNX Runtime. Figures are of a CPU and small
sizes: they show that programs run to their end, and say nothing about a GPU.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from compatgate.canary.protocol import read_report  # noqa: E402
from compatgate.canary.run import Report  # noqa: E402
from compatgate.canary.workload import Workload  # noqa: E402
from compatgate.canary.workloads import Library  # noqa: E402
from compatgate.resources import canary_dir  # noqa: E402

FAULTS = HERE / "canary_faults.toml"
PAGE = HERE / "CANARY_CPU.md"
FEW = ("--device", "cpu", "--repetitions", "10", "--warmup", "1")
FRAMEWORKS = ("jax-step", "tensorflow-step", "onnxruntime-step")
SHORTER = {"soak": ("--for", "20s", "--windows", "8"), "burn": ("--for", "10s")}
"""Programs of hours or minutes, and how long they take here."""
NEEDS = {
    "device-visible": "a GPU",
    "ptx-jit": "a GPU",
    "forward-compat": "a GPU",
    "launch": "a GPU",
    "extension": "nvcc",
    "nccl-nodes": "two nodes",
    "nccl-tests": "two GPUs and nccl-tests",
    "nvbandwidth": "a GPU and nvbandwidth",
    "dcgm-diag": "a GPU and DCGM",
    "tensorrt-rebuild": "a GPU and TensorRT",
    "vllm-serving": "a GPU and vLLM",
    "inference-tail-triton": "Triton Inference Server",
    "video-decode": "ffmpeg with h264_cuvid",
}
"""Workloads that cannot run here, and what they need."""
PATIENCE_S = 600


def read_faults() -> list[dict[str, object]]:
    """Return the faults of the file, in its order."""
    return list(tomllib.loads(FAULTS.read_text())["fault"])


def run(
    workload: Workload, pythons: Mapping[str, str], few: Sequence[str], fault: int | None = None
) -> tuple[Report, float, str]:
    """Run a program; return its report, its seconds, and why it has none.

    Args:
        workload: whose program it is.
        pythons: interpreter by the kind of framework.
        few: arguments that make it short.
        fault: number of the fault in the file; None for a right program.
    """
    python = pythons["frameworks" if workload.name in FRAMEWORKS else "torch"]
    program = str(canary_dir() / workload.name / "program.py")
    # A program without options of its own takes none.
    arguments = few if "--seed" in workload.command or workload.name in SHORTER else ()
    command = [python, program, *arguments]
    if fault is not None:
        command[1:1] = [str(HERE / "faulty.py"), str(fault)]
    begin = time.monotonic()
    done = subprocess.run(
        command,
        capture_output=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
        timeout=PATIENCE_S,
    )
    seconds = time.monotonic() - begin
    why = f"it ended with status {done.returncode}" if done.returncode else ""
    return read_report([done.stdout], workload), seconds, why


def main() -> int:
    """Run everything, write the page; the exit status is 1 where anything is not as it should be."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--python", default=sys.executable, help="interpreter that has PyTorch")
    parser.add_argument("--frameworks", default="", help="interpreter that has the others")
    parser.add_argument("--out", type=Path, default=PAGE)
    options = parser.parse_args()
    pythons = {"torch": options.python, "frameworks": options.frameworks}
    library = Library.open([])
    rows, bad = [], []
    for workload in library.workloads.values():
        if reason := _lacking(workload.name, pythons):
            rows.append(f"| `{workload.name}` | not run: needs {reason} | | |")
            continue
        few = (*FEW, *SHORTER.get(workload.name, ()))
        report, seconds, why = run(workload, pythons, few)
        failed = [check.name for check in report.checks if not check.ok]
        bad += [f"{workload.name}: {why or failed}"] if why or failed else []
        print(f"{workload.name}: {why or failed or 'passed'} in {seconds:.1f} s", flush=True)
        rows.append(f"| `{workload.name}` | {why or _words(report)} | {_figures(report)} | {seconds:.0f} |")
    found = []
    for number, fault in enumerate(read_faults()):
        workload = library.workload(str(fault["workload"]))
        row = f"| `{workload.name}` | {fault['says']} |"
        if reason := _lacking(workload.name, pythons):
            found.append(f"{row} not run: needs {reason} |")
            continue
        few = (*FEW[:2], "--repetitions", "2", "--warmup", "0", *fault.get("arguments", ()))
        report, _, why = run(workload, pythons, few, number)
        failed = sorted(check.name for check in report.checks if not check.ok)
        right = not why and failed == sorted(fault["checks"])
        bad += [] if right else [f"{workload.name}, {fault['says']}: {why or failed}"]
        print(f"{workload.name} with a fault: {', '.join(failed) or why or 'NOT FOUND'}", flush=True)
        found.append(f"{row} {', '.join(failed) or 'not found'} |")
    options.out.write_text(_page(pythons, rows, found))
    print("\n".join(bad) or "all as expected")
    return int(bool(bad))


def _lacking(name: str, pythons: Mapping[str, str]) -> str:
    if name in FRAMEWORKS and not pythons["frameworks"]:
        return name.removesuffix("-step")
    return NEEDS.get(name, "")


def _words(report: Report) -> str:
    passed = sum(check.ok and not check.skipped for check in report.checks)
    skipped = sum(check.skipped for check in report.checks)
    return f"{passed} checks passed" + (f", {skipped} skipped" if skipped else "")


def _figures(report: Report) -> str:
    """Return the median of at most three metrics."""
    shown = [m for m in report.metrics if m.values][:3]
    return ", ".join(f"{m.name} {statistics.median(m.values):.3g} {m.unit}" for m in shown)


def _page(pythons: Mapping[str, str], rows: Sequence[str], found: Sequence[str]) -> str:
    code = (
        "import importlib.metadata as m; names = {d.metadata['Name'].lower(): d.version for d in "
        "m.distributions()}; print(', '.join(f'{n} {names[n]}' for n in ('torch', 'jax', "
        "'tensorflow', 'tensorflow-cpu', 'tensorflow_cpu', 'onnxruntime') if n in names))"
    )
    stated = [
        subprocess.run([p, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
        for p in pythons.values()
        if p
    ]
    head = f"Python {platform.python_version()}, {os.cpu_count()} cores; {'; '.join(stated)}."
    return "\n".join(
        [
            "# Canary programs without a GPU",
            "",
            "`make canary-cpu` writes this page. Sizes are small and gloo stands in for NCCL: the figures",
            "show that a program runs to its end, and say nothing about a GPU.",
            "",
            head,
            "",
            "| workload | checks | median of the first metrics | seconds |",
            "|---|---|---|--:|",
            *rows,
            "",
            "## Seeded faults at the timed shape",
            "",
            "`canary_faults.toml` makes each of them; the named checks failed, and no other.",
            "",
            "| workload | fault | checks that failed |",
            "|---|---|---|",
            *found,
            "",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
