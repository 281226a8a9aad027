"""Start-up of ``compatgate check`` as a ratio to ``python -c pass``, in alternating runs."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

RUNS = 40
BASELINE = [sys.executable, "-c", "pass"]
COMMAND = str(Path(sys.executable).with_name("compatgate"))
EXAMPLES = str(Path(__file__).parents[1] / "matrix" / "examples")
QUESTION = ["check", "--pool", "driver=535.104.05,gpu=A100-SXM4-80GB", "--stack"]
QUESTIONS = {
    "CUDA and GPU code": [*QUESTION, "cuda=12.2,arch=sm_80"],
    "torch and cuDNN": [*QUESTION, "torch=2.4.1+cu121,cudnn=9.1.0"],
    "denied, with fixes": [*QUESTION, "torch=2.4.1+cu121,cudnn=8.9.7"],
    "a target of a local file": ["check", "--target", "prod-a100", "--stack", "cuda=12.4"],
}


def main() -> list[str]:
    """Markdown rows: median milliseconds of processor time, those of the baseline, the ratio."""
    rows = []
    with TemporaryDirectory() as folder:
        place = ["--database", f"{folder}/gate.db"]
        run([COMMAND, "matrix", "import", EXAMPLES, *place])
        for title, question in QUESTIONS.items():
            command = [COMMAND, *question, *(place if "--target" in question else ())]
            pairs = [(run(command), run(BASELINE)) for _ in range(RUNS)]
            times, base = (statistics.median(column) for column in zip(*pairs, strict=True))
            ratio = statistics.median(a / b for a, b in pairs)
            rows.append(f"| {title} | {times * 1e3:.0f} | {base * 1e3:.0f} | {ratio:.1f} x |")
    return rows


def run(command: list[str]) -> float:
    """Seconds of processor time of one run of a command, which is not disturbed by other work."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    print(*main(), sep="\n")
