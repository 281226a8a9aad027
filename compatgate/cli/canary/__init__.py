"""Run ``compatgate canary``: canary runs, workloads and measurements.

The action ``judge`` is here: it finds regressions of a candidate against a baseline.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

from compatgate.errors import BadInput, quote_error
from compatgate.kit.cli.options import add_format
from compatgate.kit.cli.terminal import paint, wants_colour, width_of, wrap

if TYPE_CHECKING:
    import argparse

    from compatgate.canary.judge.measurements import MeasurementFile
    from compatgate.canary.judge.result import MetricJudgement
    from compatgate.canary.judge.workload import WorkloadJudgement
    from compatgate.canary.workload import Better, MetricSpec

EXAMPLES = """\
examples:
  compatgate canary run --suite smoke --target prod-a100 --stack cuda=12.4,torch=2.4.1+cu124
  compatgate canary list --state active
  compatgate canary baselines list --state proposed
  compatgate canary judge before.jsonl after.jsonl
  compatgate canary judge pairs.jsonl --paired --history last-week.jsonl
  compatgate canary lint ./our-workloads
"""
ACTIONS = {
    "run": ("compatgate.service.runs.cli:start", "run a suite for a target's stack"),
    "list": ("compatgate.service.runs.cli:list", "list runs"),
    "show": ("compatgate.service.runs.cli_show:show", "show a run and its steps"),
    "logs": ("compatgate.service.runs.cli:logs", "print the logs of a run"),
    "cancel": ("compatgate.service.runs.cli:cancel", "cancel runs"),
    "discard": (
        "compatgate.service.runs.cli:discard",
        "discard a judged run: it no longer counts as evidence",
    ),
    "rerun": ("compatgate.service.runs.cli:rerun", "requeue a finished run"),
    "import": (
        "compatgate.service.runs.cli_import:import",
        "import a report of another tool, with its source",
    ),
    "sample": (
        "compatgate.cli.canary.samples:sample",
        "write the measurements of a run to sample files",
    ),
    "hosts": (
        "compatgate.service.runs.cli_hosts:hosts",
        "list the staging hosts that workers serve",
    ),
    "baselines": (
        "compatgate.service.baselines.cli",
        "list, show, approve and refuse baselines",
    ),
    "fleet": (
        "compatgate.service.runs.cli_fleet:fleet",
        "run a suite on every host of a pool, and name the slow ones",
    ),
    "drift": (
        "compatgate.service.runs.cli_hosts:drift",
        "compare measurements across hosts",
    ),
    "judge": ("compatgate.cli.canary:judge", "compare measurements of a candidate"),
    "fetch": ("compatgate.cli.canary.workloads:fetch", "copy the workload in an image"),
    "lint": ("compatgate.cli.canary.workloads:lint", "check workloads without running them"),
    "read": ("compatgate.cli.canary.samples:read", "parse the output of a tool with an adapter"),
    "suites": ("compatgate.cli.canary.workloads:suites", "list suites of workloads"),
    "workloads": ("compatgate.cli.canary.workloads:workloads", "list workloads, or show one"),
}


EXITS = {"passed": 0, "failed": 1, "inconclusive": 3}
VERDICTS = {"passed": "no-regression", "failed": "regression", "inconclusive": "inconclusive"}
MINIMUM = 10
_TOLERANCE = 0.05
_JUDGE_EPILOG = """\
A file holds canary JSON lines or plain numbers, one per line; "-" is standard input.
With --paired, one file holds canary JSON lines with "arm" ("A" reference, "B" candidate), "pair"
and "block"; a block is one process. All metrics are judged as one suite.
exit status: 0 no regression, 1 regression, 2 bad input, 3 inconclusive (prints missing data)
"""


def add_judge_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    from compatgate.cli.canary import paired

    parser.epilog = _JUDGE_EPILOG
    parser.add_argument(
        "baseline",
        metavar="BASELINE",
        help="file with accepted measurements; with --paired, file with the pairs",
    )
    parser.add_argument(
        "candidate",
        metavar="CANDIDATE",
        nargs="?",
        help="file with measurements to judge; omit with --paired",
    )
    parser.add_argument(
        "--metric",
        action="append",
        metavar="M",
        help="metric to judge (default: all); may be repeated",
    )
    parser.add_argument(
        "--better",
        choices=("lower", "higher", "either"),
        help="better direction; either: any change is a regression "
        "(default: from the file or the unit: lower for ms, higher for GB/s; else either)",
    )
    parser.add_argument(
        "--tolerance",
        type=float,
        metavar="SHARE",
        help=f"relative change to detect (default: {_TOLERANCE})",
    )
    parser.add_argument(
        "--repetitions",
        type=int,
        metavar="N",
        help=f"minimum number of values on each side (default: {MINIMUM}); 30 are better",
    )
    parser.add_argument("--unit", default="", help="unit of plain numbers")
    paired.add_arguments(parser)
    add_format(parser)


def run_judge(args: argparse.Namespace) -> int:
    """Judge and print the result.

    Raises:
        BadInput: a file cannot be read or is malformed, or an option is out of range.
    """
    from compatgate.cli.canary import paired

    _check_options(args)
    if args.paired:
        return paired.run(args)
    judged = _judge(args)
    if args.format == "json":
        import msgspec

        body = {"verdict": VERDICTS[judged.outcome], **judged.to_json()}
        print(msgspec.json.format(msgspec.json.encode(body), indent=2).decode())
    else:
        print(render(judged, VERDICTS[judged.outcome], sys.stdout))
    return EXITS[judged.outcome]


def _check_options(args: argparse.Namespace) -> None:
    from compatgate.cli.canary import paired

    if args.tolerance is not None and not 0 < args.tolerance < 1:
        raise BadInput(
            f"{args.tolerance:g} is not a tolerance",
            field="--tolerance",
            value=args.tolerance,
            hint="a share between 0 and 1, such as 0.05 for 5 %",
        )
    paired.check_options(args)
    args.repetitions = MINIMUM if args.repetitions is None else args.repetitions
    if args.repetitions < 5:
        raise BadInput(
            f"{args.repetitions} repetitions are too few",
            field="--repetitions",
            value=args.repetitions,
            hint="at least 5",
        )
    if args.baseline == args.candidate == "-":
        raise BadInput("only one file can be standard input", field="CANDIDATE", value="-")


def _judge(args: argparse.Namespace) -> WorkloadJudgement:
    from compatgate.canary.judge.workload import WorkloadJudgement, judge_samples
    from compatgate.cli.canary.paired import read_explained

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
    from compatgate.cli.canary.paired import read_peaks

    return {
        name: doubt
        for name, peak in read_peaks(args, specs).items()
        if name in candidate.metrics
        and (doubt := describe_excess(candidate.metrics[name].values, peak))
    }


def _read_measurements(args: argparse.Namespace) -> tuple[MeasurementFile, MeasurementFile]:
    """Read both files; plain numbers belong to ``--metric``, or to the other file's only metric."""
    from compatgate.canary.judge.measurements import read_measurements

    contents = {side: _content(side, getattr(args, side)) for side in ("baseline", "candidate")}
    name = args.metric[0] if args.metric and len(args.metric) == 1 else None
    read = {
        side: read_measurements(data, source=_source(args, side), metric=name, unit=args.unit)
        for side, data in contents.items()
    }
    for side, other in (("baseline", "candidate"), ("candidate", "baseline")):
        lone = list(read[other].metrics)
        if read[side].form == "plain" and read[other].form == "lines" and len(lone) == 1:
            read[side] = read_measurements(
                contents[side], source=_source(args, side), metric=lone[0], unit=args.unit
            )
    return read["baseline"], read["candidate"]


def _source(args: argparse.Namespace, side: str) -> str:
    path: str = getattr(args, side)
    return "standard input" if path == "-" else path


def _content(side: str, path: str) -> bytes:
    from compatgate.canary.judge.measurements import MAX_BYTES

    try:
        if path == "-":
            return sys.stdin.buffer.read(MAX_BYTES + 1)
        with open(path, "rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise BadInput(
            f"cannot read '{path}'",
            field=side.upper(),
            value=path,
            hint=quote_error(error),
        ) from None


def _spec(
    args: argparse.Namespace, name: str, baseline: MeasurementFile, candidate: MeasurementFile
) -> MetricSpec:
    """Return the spec of a metric: from options, then the files, then the unit."""
    from compatgate.canary.judge.prepare import parse_unit
    from compatgate.canary.workload import MetricSpec

    stated = [side.stated.get(name, (None, None)) for side in (baseline, candidate)]
    directions: set[Better] = {better for better, _ in stated if better}
    if len(directions) > 1 and not args.better:
        raise BadInput(
            f"the files disagree on the better direction of {name}",
            field="better",
            value=sorted(directions),
            hint="choose with --better",
        )
    samples = baseline.metrics.get(name) or candidate.metrics.get(name)
    unit = samples.unit if samples else args.unit
    better = args.better or next(iter(directions), None) or parse_unit(unit).better or "either"
    tolerance = args.tolerance or stated[0][1] or stated[1][1] or _TOLERANCE
    return MetricSpec(unit, better, tolerance, args.repetitions)


_COLOURS = {
    "regression": "red",
    "inconclusive": "yellow",
    "no-baseline": "yellow",
    "no-regression": "green",
}


def render(judged: WorkloadJudgement, verdict: str, stream: TextIO) -> str:
    """Return the result as text."""
    colour, width = wants_colour(stream), width_of(stream) - 2
    title = paint(verdict.replace("-", " ").upper(), "bold", _COLOURS[verdict], colour=colour)
    lines = [title]
    for check in judged.checks:
        if not check.ok:
            lines += ["", *wrap(f"check {check.name} failed: {check.message}".strip(": "), width)]
        elif check.skipped:
            lines += ["", *wrap(f"check {check.name} skipped: {check.message}".strip(": "), width)]
    for metric in judged.metrics:
        lines += ["", *_metric(metric, colour, width)]
    if not judged.metrics:
        lines += ["", *wrap(judged.reason, width)]
        lines += _label_lines("missing", "; ".join(judged.missing), width)
    return "\n".join(lines)


def _metric(metric: MetricJudgement, colour: bool, width: int) -> list[str]:
    style = _COLOURS.get(metric.outcome, "green")
    outcome = paint(metric.outcome.replace("-", " "), style, colour=colour)
    lines = [f"{wrap(metric.name, width)[0]}: {outcome}"]
    lines += [f"  {line}" for line in wrap(metric.reason, width - 2)]
    lines += _label_lines("missing", metric.missing or "", width)
    return lines + _label_lines("figures", _figures(metric), width)


def _figures(metric: MetricJudgement) -> str:
    found = metric.numbers
    if found is None:
        return ""
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
    return ", ".join(parts)


def _pair(pair: tuple[float, float]) -> str:
    return f"{pair[0]:.4g} -> {pair[1]:.4g}"


def _label_lines(label: str, text: str, width: int) -> list[str]:
    if not text:
        return []
    first, *rest = wrap(text, width - 11)
    return [f"  {label:<8} {first}", *(f"           {line}" for line in rest)]
