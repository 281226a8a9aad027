"""Run every canary program that runs without a GPU, and every seeded fault; write the table.

    python3 bench/canary_cpu.py --python .venv-torch/bin/python [--out FILE]

`make torch` makes that interpreter: it has PyTorch, JAX, TensorFlow and ONNX Runtime. Figures are
of a CPU and small sizes: they show that programs run to their end, and say nothing about a GPU.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import statistics
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import msgspec  # noqa: E402
from msgspec import Struct  # noqa: E402

from compatgate.canary.protocol import read_report  # noqa: E402
from compatgate.canary.run import Report  # noqa: E402
from compatgate.canary.workload import Workload  # noqa: E402
from compatgate.canary.workloads import Library  # noqa: E402
from compatgate.resources import canary_dir  # noqa: E402

FAULTS = HERE / "canary_faults.toml"
PAGE = HERE / "CANARY_CPU.md"
FEW = ("--device", "cpu", "--repetitions", "5", "--warmup", "0")
SHORTER = {"soak": ("--for", "5s", "--windows", "4"), "burn": ("--for", "3s")}
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
LINE = "\n"


class Fault(Struct, frozen=True, forbid_unknown_fields=True):
    """A fault of ``canary_faults.toml``."""

    workload: str
    says: str
    checks: tuple[str, ...]
    code: str
    arguments: tuple[str, ...] = ()


def read_faults() -> list[Fault]:
    """Return the faults of the file, in its order."""
    return msgspec.convert(tomllib.loads(FAULTS.read_text())["fault"], list[Fault])


def run(
    workload: Workload, python: str, few: Sequence[str], fault: int | None = None
) -> tuple[Report, float, str]:
    """Run a program; return its report, its seconds, and why it has none.

    Args:
        workload: whose program it is.
        python: interpreter that has the frameworks.
        few: arguments that make it short.
        fault: number of the fault in the file; None for a right program.
    """
    program = canary_dir() / workload.name / "program.py"
    has_options = re.search(r"program\.(options|parser)\(", program.read_text())
    command = [python, str(program), *(few if has_options else ())]
    if fault is not None:
        command[1:1] = [str(HERE / "faulty.py"), str(fault)]
    begin = time.monotonic()
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            check=False,
            timeout=PATIENCE_S,
        )
        output = done.stdout
        why = f"it ended with status {done.returncode}" if done.returncode else ""
    except subprocess.TimeoutExpired as stopped:
        output, why = stopped.stdout or b"", f"it was stopped after {PATIENCE_S} s"
    seconds = time.monotonic() - begin
    return read_report([output], workload), seconds, why


def main() -> int:
    """Run everything, write the page; the exit status is 1 if anything is unexpected."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--python", default=sys.executable, help="interpreter with the frameworks")
    parser.add_argument("--out", type=Path, default=PAGE)
    options = parser.parse_args()
    library = Library.open([])
    rows, bad = [], []
    for workload in library.workloads.values():
        if reason := NEEDS.get(workload.name):
            rows.append(f"| `{workload.name}` | not run: needs {reason} | | |")
            continue
        few = (*FEW, *SHORTER.get(workload.name, ()))
        report, seconds, why = run(workload, options.python, few)
        failed = [check.name for check in report.checks if not check.ok]
        bad += [f"{workload.name}: {why or failed}"] if why or failed else []
        print(f"{workload.name}: {why or failed or 'passed'} in {seconds:.1f} s", flush=True)
        said = f"{why or _words(report)} | {_figures(report)} | {seconds:.0f} |"
        rows.append(f"| `{workload.name}` | {said}")
    found = []
    for number, fault in enumerate(read_faults()):
        workload = library.workload(fault.workload)
        row = f"| `{workload.name}` | {fault.says} |"
        if reason := NEEDS.get(workload.name):
            found.append(f"{row} not run: needs {reason} |")
            continue
        few = (*FEW[:2], "--repetitions", "1", "--warmup", "0", *fault.arguments)
        report, _, why = run(workload, options.python, few, number)
        failed = sorted(check.name for check in report.checks if not check.ok)
        right = not why and failed == sorted(fault.checks)
        bad += [] if right else [f"{workload.name}, {fault.says}: {why or failed}"]
        print(
            f"{workload.name} with a fault: {', '.join(failed) or why or 'NOT FOUND'}", flush=True
        )
        found.append(f"{row} {', '.join(failed) or 'not found'} |")
    options.out.write_text(_page(options.python, rows, found))
    print("\n".join(bad) or "all as expected")
    return int(bool(bad))


def _words(report: Report) -> str:
    passed = sum(check.ok and not check.skipped for check in report.checks)
    skipped = sum(check.skipped for check in report.checks)
    return f"{passed} check{'s' * (passed != 1)} passed" + (
        f", {skipped} skipped" if skipped else ""
    )


def _figures(report: Report) -> str:
    """Return the median of at most three metrics."""
    shown = [m for m in report.metrics if m.values][:3]
    return ", ".join(f"{m.name} {statistics.median(m.values):.3g} {m.unit}" for m in shown)


def _page(python: str, rows: Sequence[str], found: Sequence[str]) -> str:
    code = (
        "import importlib.metadata as m\n"
        "for name in 'torch', 'jax', 'tensorflow_cpu', 'onnxruntime': print(name, m.version(name))"
    )
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    versions = ", ".join([f"Python {platform.python_version()}", *done.stdout.splitlines()])
    return f"""# Canary programs without a GPU

`make canary-cpu` writes this page. Sizes are small and gloo stands in for NCCL: the figures show
that a program runs to its end, and say nothing about a GPU. They are of {os.cpu_count()} cores that
other work shared, so the seconds are an upper bound; one thread a program. {versions}.

| workload | checks | median of the first metrics | seconds |
|---|---|---|--:|
{LINE.join(rows)}

## Seeded faults at the timed shape

`canary_faults.toml` makes each of them; the named checks failed, and no other.

| workload | fault | checks that failed |
|---|---|---|
{LINE.join(found)}
"""


if __name__ == "__main__":
    sys.exit(main())
