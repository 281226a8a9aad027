"""Run ``compatgate canary judge``: find regressions of a candidate against a baseline."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

from compatgate.cli.canary import paired
from compatgate.cli.canary.paired import COLOURS, TOLERANCE, label_lines, read_explained, read_peaks
from compatgate.errors import BadInput
from compatgate.kit.cli.options import FORMAT
from compatgate.kit.cli.output import open_input, print_answer
from compatgate.kit.cli.terminal import paint, wants_colour, width_of, wrap
from compatgate.kit.cli.usage import action

if TYPE_CHECKING:
    from compatgate.canary.judge.measurements import MeasurementFile
    from compatgate.canary.judge.result import MetricJudgement
    from compatgate.canary.judge.workload import WorkloadJudgement
    from compatgate.canary.workload import Better, MetricSpec

EXITS = {"passed": 0, "failed": 1, "inconclusive": 3}
VERDICTS = {"passed": "no-regression", "failed": "regression", "inconclusive": "inconclusive"}
MINIMUM = 10


@action(
    "judge",
    "compare measurements of a candidate",
    f"""\
BASELINE                   file with accepted measurements; with --paired, file with the pairs
[CANDIDATE]                file with measurements to judge; omit with --paired
--metric M ...             metric to judge (default: all); may be repeated
--better {{lower,higher,either}}
    better direction; either: any change is a regression (default: from the file or the unit: lower
    for ms, higher for GB/s; else either)
--tolerance SHARE          relative change to detect (default: {TOLERANCE})
--repetitions N            minimum number of values on each side (default: {MINIMUM}); 30 are better
--unit UNIT                unit of plain numbers
""",
    paired.USAGE,
    FORMAT,
    epilog="""\
A file holds canary JSON lines or plain numbers, one per line; "-" is standard input.
With --paired, one file holds canary JSON lines with "arm" ("A" reference, "B" candidate), "pair"
and "block"; a block is one process. All metrics are judged as one suite.
exit status: 0 no regression, 1 regression, 2 bad input, 3 inconclusive (prints missing data)
""",
    tolerance={"type": float},
    repetitions={"type": int},
    unit={"default": ""},
)
def run_judge(args: argparse.Namespace) -> int:
    """Judge and print the result."""
    _check_options(args)
    judged: Any = paired.judge(args) if args.paired else _judge(args)
    verdict = VERDICTS[judged.outcome]
    print_answer(
        args.format,
        {"verdict": verdict, **msgspec.to_builtins(judged)},
        lambda: (paired.render if args.paired else render)(judged, verdict, sys.stdout),
    )
    return EXITS[judged.outcome]


def _check_options(args: argparse.Namespace) -> None:
    if args.tolerance is not None and not 0 < args.tolerance < 1:
        what = f"{args.tolerance:g} is not a tolerance"
        hint = "a share between 0 and 1, such as 0.05 for 5 %"
        raise BadInput(what, field="--tolerance", value=args.tolerance, hint=hint)
    paired.check_options(args)
    args.repetitions = MINIMUM if args.repetitions is None else args.repetitions
    if args.repetitions < 5:
        what = f"{args.repetitions} repetitions are too few"
        raise BadInput(what, field="--repetitions", value=args.repetitions, hint="at least 5")
    if args.baseline == args.candidate == "-":
        raise BadInput("only one file can be standard input", field="CANDIDATE", value="-")


def _judge(args: argparse.Namespace) -> WorkloadJudgement:
    from compatgate.canary.judge.workload import WorkloadJudgement, judge_samples

    baseline, candidate = _read_measurements(args)
    names = args.metric or [*dict.fromkeys([*baseline.metrics, *candidate.metrics])]
    specs = {name: _spec(args, name, baseline, candidate) for name in names}
    judged = judge_samples(
        specs,
        baseline.metrics,
        candidate.metrics,
        candidate.checks,
        doubts=_find_doubts(args, specs, candidate),
        explained=read_explained(args, specs),
    )
    if not specs and judged.outcome != "failed":
        reason = "neither file has a metric"
        return WorkloadJudgement(
            "inconclusive", reason, candidate.checks, missing=("metrics to compare",)
        )
    return judged


def _find_doubts(
    args: argparse.Namespace, specs: dict[str, MetricSpec], candidate: MeasurementFile
) -> dict[str, str]:
    """Return by metric why the candidate's values are implausible: above a stated peak."""
    from compatgate.canary.peaks import describe_excess

    return {
        name: doubt
        for name, peak in read_peaks(args, specs).items()
        if name in candidate.metrics
        and (doubt := describe_excess(candidate.metrics[name].values, peak))
    }


def _read_measurements(args: argparse.Namespace) -> tuple[MeasurementFile, MeasurementFile]:
    """Read both files; plain numbers belong to ``--metric``, or to the other file's only metric."""
    from compatgate.canary.judge.measurements import MAX_BYTES, read_measurements

    contents: dict[str, bytes] = {}
    for side in ("baseline", "candidate"):
        with open_input(getattr(args, side), side.upper()) as file:
            contents[side] = file.read(MAX_BYTES + 1)

    def read(side: str, metric: str | None) -> MeasurementFile:
        path = getattr(args, side)
        source = "standard input" if path == "-" else path
        return read_measurements(contents[side], source=source, metric=metric, unit=args.unit)

    name = args.metric[0] if args.metric and len(args.metric) == 1 else None
    files = {side: read(side, name) for side in contents}
    for side, other in (("baseline", "candidate"), ("candidate", "baseline")):
        lone = list(files[other].metrics)
        if files[side].form == "plain" and files[other].form == "lines" and len(lone) == 1:
            files[side] = read(side, lone[0])
    return files["baseline"], files["candidate"]


def _spec(
    args: argparse.Namespace, name: str, baseline: MeasurementFile, candidate: MeasurementFile
) -> MetricSpec:
    """Return the spec of a metric: from options, then the files, then the unit."""
    from compatgate.canary.judge.prepare import parse_unit
    from compatgate.canary.workload import MetricSpec

    stated = [side.stated.get(name, (None, None)) for side in (baseline, candidate)]
    directions: set[Better] = {better for better, _ in stated if better}
    if len(directions) > 1 and not args.better:
        what, hint = f"the files disagree on the better direction of {name}", "choose with --better"
        raise BadInput(what, field="better", value=sorted(directions), hint=hint)
    samples = baseline.metrics.get(name) or candidate.metrics.get(name)
    unit = samples.unit if samples else args.unit
    better = args.better or next(iter(directions), None) or parse_unit(unit).better or "either"
    tolerance = args.tolerance or stated[0][1] or stated[1][1] or TOLERANCE
    return MetricSpec(unit, better, tolerance, args.repetitions)


def render(judged: WorkloadJudgement, verdict: str, stream: TextIO) -> str:
    """Return the result as text."""
    colour, width = wants_colour(stream), width_of(stream) - 2
    lines = [paint(verdict.replace("-", " ").upper(), "bold", COLOURS[verdict], colour=colour)]
    for check in judged.checks:
        if not check.ok:
            lines += ["", *wrap(f"check {check.name} failed: {check.message}".strip(": "), width)]
        elif check.skipped:
            lines += ["", *wrap(f"check {check.name} skipped: {check.message}".strip(": "), width)]
    for metric in judged.metrics:
        lines += ["", *_metric(metric, colour, width)]
    if not judged.metrics:
        lines += ["", *wrap(judged.reason, width)]
        lines += label_lines("missing", "; ".join(judged.missing), width)
    return "\n".join(lines)


def _metric(metric: MetricJudgement, colour: bool, width: int) -> list[str]:
    style = COLOURS.get(metric.outcome, "green")
    outcome = paint(metric.outcome.replace("-", " "), style, colour=colour)
    lines = [f"{wrap(metric.name, width)[0]}: {outcome}"]
    lines += [f"  {line}" for line in wrap(metric.reason, width - 2)]
    lines += label_lines("missing", metric.missing or "", width)
    if (found := metric.numbers) is None:
        return lines
    parts = [
        f"median {_pair(found.medians)}{f' {metric.unit}' if metric.unit else ''}",
        f"n {_pair(found.n)}",
        f"noise {100 * found.noise[0]:.2g} % -> {100 * found.noise[1]:.2g} %",
        f"95th percentile x {found.tail_ratio:.3g}",
        f"outliers {_pair(found.far)}",
        f"Cliff's delta {found.effect:+.2f}",
    ]
    if found.dropped:
        parts.append(f"{found.dropped} warm-up values of each run ignored")
    return lines + label_lines("figures", ", ".join(parts), width)


def _pair(pair: tuple[float, float]) -> str:
    return f"{pair[0]:.4g} -> {pair[1]:.4g}"
