"""How near the expected length of a run is to its real one, for three shipped suites on a CPU.

    python3 bench/estimate.py --python .venv-torch/bin/python

A worker runs each suite twice on the process executor, without the programs that need a GPU. From
the first run the second is expected. Small sizes stand in for those of a GPU: `canary_cpu.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from canary_cpu import FEW, NEEDS

from compatgate.canary.workloads import Library
from compatgate.resources import canary_dir

SUITES = ("inference", "training", "dl-core")
OF_GPUS = re.compile(r"^(gpus|peak|needs|repetitions) = .*\n", re.MULTILINE)
"""Lines of a manifest that only a GPU meets, and the number of samples, which is smaller here."""

HEAD = """
## How long a run takes

A worker ran each suite twice on the process executor, without the programs that need a GPU. "Expected" is what the gate
said of the second run when it was queued.

| suite | programs | expected | took | ratio |
|---|--:|--:|--:|--:|"""  # noqa: E501


def main() -> int:
    """Print the table; the exit status is 1 where an estimate is off by more than a factor of 2."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--python", default=sys.executable, help="interpreter with the frameworks")
    python = str(Path(parser.parse_args().python).absolute())
    print(HEAD)
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        suites = write_workloads(Path(folder), python)
        for suite, expected, took in run_suites(Path(folder), list(suites)):
            ratios.append(expected / took)
            figures = f"{expected:.0f} s | {took:.0f} s | {ratios[-1]:.2f}"
            name = suite.removeprefix("cpu-")
            print(f"| {name} | {len(suites[suite])} | {figures} |", flush=True)
    return int(not all(0.5 <= ratio <= 2 for ratio in ratios))


def write_workloads(folder: Path, python: str) -> Mapping[str, Sequence[str]]:
    """Write the suites' programs for a CPU, by this interpreter; return their names by suite."""
    library, suites = Library.open([]), {}
    shutil.copytree(canary_dir() / "lib", folder / "workloads" / "lib")
    for suite in SUITES:
        names = [name for name in library.suites[suite].workloads if name not in NEEDS]
        suites[f"cpu-{suite}"] = [f"cpu-{name}" for name in names]
        for name in names:
            target = folder / "workloads" / f"cpu-{name}"
            shutil.copytree(canary_dir() / name, target, dirs_exist_ok=True)
            has_options = re.search(
                r"program\.(options|parser)\(", (target / "program.py").read_text()
            )
            start = json.dumps([python, "program.py", *(FEW if has_options else ())])[:-1]
            text = (canary_dir() / name / "workload.toml").read_text()
            text = OF_GPUS.sub(lambda line: line[0] if line[1] == "gpus" else "", text)
            text = text.replace(f'name = "{name}"', f'name = "cpu-{name}"', 1)
            text = text.replace('["python3", "program.py"', start, 1)
            (target / "workload.toml").write_text(re.sub(r"(?m)^gpus = \d+", "gpus = 0", text))
    lines = [
        f'[{suite}]\ndescription = "on a CPU"\nworkloads = {json.dumps(names)}\n'
        for suite, names in suites.items()
    ]
    (folder / "workloads" / "suites.toml").write_text("\n".join(lines))
    (folder / "hosts.toml").write_text('[[host]]\nname = "here"\nexecutor = "process"\n')
    return suites


def run_suites(folder: Path, suites: Sequence[str]) -> Iterator[tuple[str, float, float]]:
    """Run each suite twice; yield the expected and the real seconds of the second run."""

    environment = {**os.environ, "COMPATGATE_WORKLOADS": str(folder / "workloads")}

    def call(*words: str) -> Any:
        command = [sys.executable, "-m", "compatgate", *words, "--database", f"{folder}/gate.db"]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, check=True, env=environment
        )
        return json.loads(done.stdout) if "json" in words else None

    work = ("worker", "--hosts", str(folder / "hosts.toml"), "--once", "--log-level", "error")
    call(*work)  # makes the host known
    for suite in (*suites, *suites):
        (queued,) = call(
            "canary", "run", "--suite", suite, "--host", "here", "--detach", "--format", "json"
        )
        call(*work)
        run = call("canary", "show", queued["id"], "--format", "json")
        begin, end = (datetime.fromisoformat(run[what]) for what in ("started_at", "finished_at"))
        if queued["left_s"] is not None:
            yield suite, queued["left_s"], (end - begin).total_seconds()


if __name__ == "__main__":
    sys.exit(main())
