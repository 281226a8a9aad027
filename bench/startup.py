"""Start-up of ``compatgate check --pool`` as a ratio to ``python -c pass``, in alternating runs."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

RUNS = 40
BASELINE = [sys.executable, "-c", "pass"]
COMMAND = str(Path(sys.executable).with_name("compatgate"))
QUESTION = ["check", "--pool", "driver=535.104.05,gpu=A100-SXM4-80GB", "--stack"]
QUESTIONS = {
    "CUDA and GPU code": [COMMAND, *QUESTION, "cuda=12.2,arch=sm_80"],
    "torch and cuDNN": [COMMAND, *QUESTION, "torch=2.4.1+cu121,cudnn=9.1.0"],
    "denied, with fixes": [COMMAND, *QUESTION, "torch=2.4.1+cu121,cudnn=8.9.7"],
}


def main() -> list[str]:
    """Markdown rows: median milliseconds of the command, of the baseline, and the ratio."""
    rows = []
    for title, command in QUESTIONS.items():
        pairs = [(run(command), run(BASELINE)) for _ in range(RUNS)]
        ours, base = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratio = statistics.median(a / b for a, b in pairs)
        rows.append(f"| {title} | {ours * 1e3:.0f} | {base * 1e3:.0f} | {ratio:.1f} x |")
    return rows


def run(command: list[str]) -> float:
    """Seconds of one run of a command."""
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    return time.perf_counter() - start


if __name__ == "__main__":
    print(*main(), sep="\n")
