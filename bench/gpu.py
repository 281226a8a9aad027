"""Runs the GPU workloads on this machine, and has the judge look at equal and at slower runs.

    python3 bench/gpu.py --out DIR                # ten minutes; the same again goes on where it was
    python3 bench/gpu.py --out DIR --device cpu   # tries this tool itself, with small sizes

Bare: no container, no database, no network. It needs msgspec, packaging, PyYAML and jsonschema (the
repository need not be installed), and PyTorch for most workloads. Everything is written at once:

    DIR/output/WORKLOAD/RUN.jsonl   what the program printed, as it is
    DIR/runs.jsonl                  which runs there are, how each ended and how long it took
    DIR/judged.json                 what the judge says of each
    DIR/results.md                  the section for bench/RESULTS.md (--publish puts it there)

Exit status: 0 all as expected, 1 something failed, was flagged or missed, 2 bad usage, 3 nothing
could be judged, or no GPU.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import msgspec

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
MISSING = [
    name
    for name in ("msgspec", "packaging", "yaml", "jsonschema")
    if importlib.util.find_spec(name) is None
]
if MISSING:
    sys.exit(
        f"bench/gpu.py needs {', '.join(MISSING)}: pip install msgspec packaging PyYAML "
        "jsonschema; for a machine without a network see docs/how-to/measure-on-gpus.md"
    )

import gpu_page  # noqa: E402
from gpu_judge import Said, judge_runs, prepared  # noqa: E402
from gpu_options import read_options  # noqa: E402
from gpu_plan import ON_CPU, Step, command, lacking, ordered, read_seeded, steps  # noqa: E402
from gpu_run import Kept, Ran, gpus_here, run  # noqa: E402

from compatgate.canary.peaks import find_shares  # noqa: E402
from compatgate.canary.protocol import read_report  # noqa: E402
from compatgate.canary.run import Report, merge_reports  # noqa: E402
from compatgate.canary.workloads import Library  # noqa: E402
from compatgate.catalog import load_facts  # noqa: E402
from compatgate.errors import CompatgateError  # noqa: E402

BAD = ("failed", "flagged", "missed")
LEAST_S = 5.0
"""A run is not begun with less time left."""
MARGIN = 1.15
"""A run may take so much longer than the last of its workload."""


class Bench:
    """The runs of one folder.

    Args:
        options: of the command line.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.deadline = time.monotonic() + options.minutes * 60
        self.kept = Kept(options.out)
        self.library = Library.open([HERE / "standin", *options.workloads])
        self.seeded = read_seeded(options.device)
        self.gpus = [] if options.device == "cpu" else gpus_here(options.python)
        self.names, self.skipped = self._chosen()
        self.plan = steps(self.names, self.seeded, options.baselines)
        self.facts = load_facts([])

    def work(self) -> int:
        """Run what is left of the plan while there is time; the exit status."""
        if self.options.device == "cuda" and not self.gpus:
            print("no GPU that CUDA gives to this process", file=sys.stderr)
            return 3
        self._check_same()
        for step in self.plan:
            done = {(one.workload, one.label): one for one in self._ran()}
            known = (step.workload, step.label) in done
            if not known and self._worth(step) and self._room(step, list(done.values())):
                self._run(step)
                self.write()
        said = self.write()
        if any(one.word in BAD for one in said):
            return 1
        return 0 if any(one.kind != "baseline" and one.word == "as expected" for one in said) else 3

    def write(self) -> list[Said]:
        """Judge what there is and write it; what was said."""
        ran = self._ran()
        said, share, reports = [], {}, []
        for name in ordered(list({one.workload for one in ran})):
            workload = prepared(self.library.workload(name), self.options.device, self._few)
            mine = [one for one in ran if one.workload == name]
            read = {one.label: self._report(one) for one in mine}
            notes = {one.label: self.kept.note(one) for one in mine}
            said += judge_runs(workload, mine, read, self.seeded, notes)
            alike = [read[one.label] for one in mine if one.kind != "seeded" and not one.exit]
            if alike:
                reports += alike
                known = self.facts.gpus, self.facts.gpu_peaks
                share[name] = find_shares(workload.metrics, merge_reports(alike), *known)
        done = {(one.workload, one.label) for one in ran}
        left = [s for s in self.plan if (s.workload, s.label) not in done and self._waits(s)]
        page = gpu_page.section(self._facts(reports, share), said, self.skipped, len(left))
        (self.options.out / "results.md").write_text(page)
        bodies = [msgspec.to_builtins(one) for one in said]
        (self.options.out / "judged.json").write_text(json.dumps(bodies, indent=1) + "\n")
        return said

    @property
    def _few(self) -> int | None:
        return self.options.repetitions or (10 if self.options.device == "cpu" else None)

    def _chosen(self) -> tuple[list[str], dict[str, str]]:
        known, device = self.library.workloads, self.options.device
        asked = self.options.workload
        for name in asked:
            self.library.workload(name)
        every = list(ON_CPU) if device == "cpu" else [n for n, w in known.items() if w.gpus]
        names = ordered(asked or [name for name in every if name in known])
        why = {name: lacking(known[name], device, len(self.gpus)) for name in names}
        own = {name for name in asked if device == "cpu"}
        skipped = {name: reason for name, reason in why.items() if reason and name not in own}
        return [name for name in names if name not in skipped], skipped

    def _ran(self) -> list[Ran]:
        """Runs of the workloads as they are now."""
        digests = {name: workload.digest for name, workload in self.library.workloads.items()}
        return [one for one in self.kept.runs() if digests.get(one.workload) == one.digest]

    def _check_same(self) -> None:
        """A folder holds runs of one place and one way, else nothing in it can be compared."""
        path = self.options.out / "place.json"
        names = [gpu["name"] for gpu in self.gpus]
        options = self.options
        now = {"device": options.device, "gpus": names, "repetitions": self._few}
        now["python"] = options.python
        if options.value_ms:
            now["value_ms"] = options.value_ms
        if not path.exists():
            path.write_text(json.dumps(now) + "\n")
        elif json.loads(path.read_text()) != now:
            sys.exit(
                f"{self.options.out} holds runs of {path.read_text().strip()}; take another --out"
            )

    def _worth(self, step: Step) -> bool:
        """Whether there is something to hold it against: a first run that measured or checked."""
        if step.label == "baseline-1":
            return True
        reports = [self._report(ran) for ran in self._first(step) if not ran.exit]
        return any(report.metrics or report.checks for report in reports)

    def _waits(self, step: Step) -> bool:
        """Whether it is left for want of time, and not because it is of no use."""
        return not self._first(step) or self._worth(step)

    def _first(self, step: Step) -> list[Ran]:
        first = step.workload, "baseline-1"
        return [one for one in self._ran() if (one.workload, one.label) == first]

    def _room(self, step: Step, done: list[Ran]) -> bool:
        """Whether there is time for a step, going by the workload's longest run so far."""
        left = self.deadline - time.monotonic()
        taken = max((one.seconds for one in done if one.workload == step.workload), default=0.0)
        return left > max(LEAST_S, taken * MARGIN)

    def _run(self, step: Step) -> None:
        options, workload = self.options, self.library.workload(step.workload)
        seeded = self.seeded.get(step.label) if step.kind == "seeded" else None
        vector = command(
            workload,
            step,
            seeded,
            options.device,
            options.python,
            self._few,
            options.value_ms,
        )
        more = {"OMP_NUM_THREADS": "1"} if options.device == "cpu" else {}
        more |= seeded.environment if seeded else {}
        left = self.deadline - time.monotonic()
        print(f"{step.workload} {step.label} ...", end=" ", flush=True)
        ran = run(self.kept, workload, step, vector, more, min(left, workload.timeout_s))
        print(
            "cut off: its time was up" if ran is None else f"{ran.seconds:.1f} s, exit {ran.exit}"
        )

    def _report(self, ran: Ran) -> Report:
        workload = self.library.workload(ran.workload)
        return read_report([self.kept.output(ran).read_bytes()], workload)

    def _facts(self, reports: list[Report], share: dict) -> gpu_page.Facts:
        envs = [report.env for report in reports if report.env]
        versions = {name: v for env in envs for name, v in sorted(env.versions.items())}
        return gpu_page.Facts(
            device=self.options.device,
            date=datetime.now(UTC).date().isoformat(),
            gpus=next((env.gpus for env in envs if env.gpus), ()),
            driver=next((env.driver for env in envs if env.driver), None),
            versions=versions,
            share=share,
        )


def main() -> int:
    """Run, judge, write; the exit status."""
    options = read_options(__doc__)
    try:
        bench = Bench(options)
        status = bench.work()
    except CompatgateError as error:
        print(f"error: {error.detail}", file=sys.stderr)
        return 2
    page = options.out / "results.md"
    if page.exists():
        print("\n" + page.read_text())
    if options.publish and status in (0, 1):
        gpu_page.RESULTS.write_text(gpu_page.put(gpu_page.RESULTS.read_text(), page.read_text()))
    return status


if __name__ == "__main__":
    sys.exit(main())
