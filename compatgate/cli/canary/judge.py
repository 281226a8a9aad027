"""Run ``compatgate canary judge``: find regressions against a baseline, or in pairs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any, TextIO

import msgspec

from compatgate.canary.judge.measurements import (
    MAX_BYTES,
    MeasurementFile,
    PairedFile,
    read_measurements,
    read_pairs,
)
from compatgate.canary.judge.noise import fit_noise
from compatgate.canary.judge.paired.blocks import (
    PairedJudgement,
    PairedMetric,
    compute_log_ratios,
    counts_events,
    find_refusal,
)
from compatgate.canary.judge.paired.suite import Knowledge, judge_pairs
from compatgate.canary.judge.prepare import parse_unit
from compatgate.canary.judge.result import MetricJudgement
from compatgate.canary.judge.workload import WorkloadJudgement, judge_samples
from compatgate.canary.peaks import describe_excess
from compatgate.canary.workload import Better, MetricSpec
from compatgate.errors import BadInput
from compatgate.kit.cli.options import FORMAT
from compatgate.kit.cli.output import (
    name_input,
    open_input,
    paint,
    print_answer,
    wants_colour,
    width_of,
    wrap,
    wrap_beside,
)
from compatgate.kit.cli.usage import action

EXITS = {"passed": 0, "failed": 1, "inconclusive": 3}
VERDICTS = {"passed": "no-regression", "failed": "regression", "inconclusive": "inconclusive"}
MINIMUM = 10
TOLERANCE = 0.05
_COLOURS = {
    "regression": "red",
    "inconclusive": "yellow",
    "no-baseline": "yellow",
    "no-regression": "green",
}


@action(
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
--paired                   judge one file with pairs of reference and candidate
--history FILE ...         with --paired: pairs of an earlier session, to estimate the noise; may be
                           repeated
--correction {{holm,benjamini-hochberg}}
    with --paired: limit the probability of a false failure (holm, the default), or the share of
    false regressions
--peak M=VALUE ...         published peak of a metric, in its unit; may be repeated
--explained M=REASON ...   reason why an improvement by more than 2 x, or a value above the peak, is
                           real; may be repeated
""",
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
    judged: Any = _judge_pairs(args) if args.paired else _judge_files(args)
    verdict = VERDICTS[judged.outcome]
    print_answer(
        args.format,
        {"verdict": verdict, **msgspec.to_builtins(judged)},
        lambda: _render(judged, verdict, sys.stdout, paired=args.paired),
    )
    return EXITS[judged.outcome]


def _check_options(args: argparse.Namespace) -> None:
    if args.tolerance is not None and not 0 < args.tolerance < 1:
        what = f"{args.tolerance:g} is not a tolerance"
        hint = "a share between 0 and 1, such as 0.05 for 5 %"
        raise BadInput(what, field="--tolerance", value=args.tolerance, hint=hint)
    if args.paired and args.candidate is not None:
        what, hint = "--paired takes one file with both arms", "omit CANDIDATE"
        raise BadInput(what, field="CANDIDATE", value=args.candidate, hint=hint)
    if not args.paired and args.candidate is None:
        hint = "name two files, or one file of pairs with --paired"
        raise BadInput("the candidate's file is missing", field="CANDIDATE", hint=hint)
    wrong = "cannot be combined with --paired" if args.paired else "needs --paired"
    for option in ("repetitions", "unit") if args.paired else ("history", "correction"):
        if getattr(args, option):
            raise BadInput(f"--{option} {wrong}", field=f"--{option}")
    args.repetitions = MINIMUM if args.repetitions is None else args.repetitions
    if args.repetitions < 5:
        what = f"{args.repetitions} repetitions are too few"
        raise BadInput(what, field="--repetitions", value=args.repetitions, hint="at least 5")
    if [args.baseline, args.candidate, *args.history].count("-") > 1:
        field = "--history" if args.paired else "CANDIDATE"
        raise BadInput("only one file can be standard input", field=field, value="-")


def _read(path: str, field: str) -> bytes:
    with open_input(path, field) as file:
        return file.read(MAX_BYTES + 1)


def _judge_files(args: argparse.Namespace) -> WorkloadJudgement:
    baseline, candidate = _read_measurements(args)
    names = args.metric or [*dict.fromkeys([*baseline.metrics, *candidate.metrics])]
    specs = {name: _spec_of_files(args, name, baseline, candidate) for name in names}
    doubts = {
        name: doubt
        for name, peak in _read_peaks(args, specs).items()
        if name in candidate.metrics
        and (doubt := describe_excess(candidate.metrics[name].values, peak))
    }
    judged = judge_samples(
        specs,
        baseline.metrics,
        candidate.metrics,
        candidate.checks,
        doubts=doubts,
        explained=_split(args.explained, "--explained", specs),
    )
    if not specs and judged.outcome != "failed":
        reason, missing = "neither file has a metric", ("metrics to compare",)
        return WorkloadJudgement("inconclusive", reason, candidate.checks, missing=missing)
    return judged


def _read_measurements(args: argparse.Namespace) -> tuple[MeasurementFile, MeasurementFile]:
    """Read both files; plain numbers belong to ``--metric``, or to the other file's only metric."""
    sides = ("baseline", "candidate")
    contents = {side: _read(getattr(args, side), side.upper()) for side in sides}

    def read(side: str, metric: str | None) -> MeasurementFile:
        source = name_input(getattr(args, side))
        return read_measurements(contents[side], source=source, metric=metric, unit=args.unit)

    name = args.metric[0] if args.metric and len(args.metric) == 1 else None
    files = {side: read(side, name) for side in sides}
    for side, other in (sides, sides[::-1]):
        lone = list(files[other].metrics)
        if files[side].form == "plain" and files[other].form == "lines" and len(lone) == 1:
            files[side] = read(side, lone[0])
    return files["baseline"], files["candidate"]


def _spec_of_files(
    args: argparse.Namespace, name: str, baseline: MeasurementFile, candidate: MeasurementFile
) -> MetricSpec:
    stated = [side.stated.get(name, (None, None)) for side in (baseline, candidate)]
    directions: set[Better] = {better for better, _ in stated if better}
    if len(directions) > 1 and not args.better:
        what, hint = f"the files disagree on the better direction of {name}", "choose with --better"
        raise BadInput(what, field="better", value=sorted(directions), hint=hint)
    samples = baseline.metrics.get(name) or candidate.metrics.get(name)
    better = next(iter(directions), None)
    tolerance = stated[0][1] or stated[1][1]
    return _spec(args, samples.unit if samples else args.unit, better, tolerance)


def _spec(
    args: argparse.Namespace, unit: str, better: Better | None, tolerance: float | None
) -> MetricSpec:
    """Return the spec of a metric: from options, then the file, then the unit."""
    better = args.better or better or parse_unit(unit).better or "either"
    return MetricSpec(unit, better, args.tolerance or tolerance or TOLERANCE, args.repetitions)


def _judge_pairs(args: argparse.Namespace) -> PairedJudgement:
    def read(path: str, field: str) -> PairedFile:
        return read_pairs(_read(path, field), source=name_input(path))

    pairs = read(args.baseline, "PAIRS")
    history = [read(path, "--history") for path in args.history]
    specs = {}
    for name in dict.fromkeys(args.metric or pairs.metrics):
        unit = pairs.metrics[name].unit if name in pairs.metrics else ""
        specs[name] = _spec(args, unit, *pairs.stated.get(name, (None, None)))
    reasons, peaks = _split(args.explained, "--explained", specs), _read_peaks(args, specs)
    known = {}
    for name, spec in specs.items():
        noise = fit_noise(  # of the sessions in which the metric can be compared
            compute_log_ratios(session).noise
            for session in (file.metrics[name] for file in history if name in file.metrics)
            if not counts_events(session) and not find_refusal(session, spec.tolerance)
        )
        known[name] = Knowledge(noise, peaks.get(name), reasons.get(name, ""))
    return judge_pairs(
        specs,
        pairs.metrics,
        known=known,
        checks=pairs.checks,
        reference_checks=pairs.reference_checks,
        correction=args.correction or "holm",
    )


def _read_peaks(args: argparse.Namespace, specs: dict[str, MetricSpec]) -> dict[str, float]:
    peaks = {}
    for name, text in _split(args.peak, "--peak", specs).items():
        try:
            peak = float(text)
        except ValueError:
            peak = 0.0
        if not 0 < peak < float("inf"):
            what = f"'{text}' is not a peak of {name}"
            hint = "a number above 0, in the unit of the metric"
            raise BadInput(what, field="--peak", value=text, hint=hint)
        peaks[name] = peak
    return peaks


def _split(options: list[str], field: str, specs: dict[str, MetricSpec]) -> dict[str, str]:
    """Read ``METRIC=...``."""
    values = {}
    for option in options:
        name, equals, text = option.partition("=")
        if not equals or not text.strip():
            hint = f"write {field} METRIC=..."
            raise BadInput(f"'{option}' has no value", field=field, value=option, hint=hint)
        if name not in specs:
            hint = f"metrics: {', '.join(list(specs)[:10])}"
            raise BadInput(f"metric {name} does not exist", field=field, value=name, hint=hint)
        values[name] = text.strip()
    return values


def _render(judged: Any, verdict: str, stream: TextIO, *, paired: bool) -> str:
    colour, width = wants_colour(stream), width_of(stream) - 2
    lines = [paint(verdict.replace("-", " ").upper(), "bold", _COLOURS[verdict], colour=colour)]
    for check in judged.checks:
        if not check.ok or check.skipped:
            state = "skipped" if check.ok else "failed"
            lines += ["", *wrap(f"check {check.name} {state}: {check.message}".strip(": "), width)]
    for metric in judged.metrics:
        name = metric.metric if paired else metric.name
        figures = _list_figures(metric)
        style = _COLOURS.get(metric.outcome, "green")
        outcome = paint(metric.outcome.replace("-", " "), style, colour=colour)
        lines += ["", f"{wrap(name, width)[0]}: {outcome}"]
        lines += [f"  {line}" for line in wrap(metric.reason, width - 2)]
        lines += _label_lines("missing", metric.missing or "", width)
        lines += _label_lines("figures", ", ".join(figures), width)
        lines += _label_lines("accepted", metric.explained if paired else "", width)
    if not judged.metrics or judged.reason.startswith("the reference"):
        lines += ["", *wrap(judged.reason, width)]
    if not judged.metrics:
        lines += _label_lines("missing", "; ".join(judged.missing), width)
    return "\n".join(lines)


def _list_figures(metric: MetricJudgement | PairedMetric) -> list[str]:
    if isinstance(metric, PairedMetric):
        figures = [f"{metric.pairs} pairs"]
        if metric.noise is not None:
            figures.append(f"noise of a pair {100 * metric.noise:.2g} %")
        if metric.history:
            added = f"{metric.history:.3g} degrees of freedom"
            figures.append(f"other metrics and sessions add {added}")
        return figures
    if (found := metric.numbers) is None:
        return []
    pair: Callable[[tuple[float, float]], str] = "{0[0]:.4g} -> {0[1]:.4g}".format
    figures = [
        f"median {pair(found.medians)}{f' {metric.unit}' if metric.unit else ''}",
        f"n {pair(found.n)}",
        f"noise {100 * found.noise[0]:.2g} % -> {100 * found.noise[1]:.2g} %",
        f"95th percentile x {found.tail_ratio:.3g}",
        f"outliers {pair(found.far)}",
        f"Cliff's delta {found.effect:+.2f}",
    ]
    if found.dropped:
        figures.append(f"{found.dropped} warm-up values of each run ignored")
    return figures


def _label_lines(label: str, text: str, width: int) -> list[str]:
    """Return a text beside its label, wrapped; nothing for an empty text."""
    return wrap_beside(f"  {label:<8} ", text, width) if text else []
