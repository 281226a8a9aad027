"""Run ``compatgate canary judge``: find regressions of a candidate against a baseline."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

from compatgate.errors import BadInput
from compatgate.kit.cli.terminal import paint, wants_colour, width_of, wrap

if TYPE_CHECKING:
    import argparse

    from compatgate.canary.judge.measurements import MeasuredFile
    from compatgate.canary.judge.result import MetricJudgement
    from compatgate.canary.judge.workload import WorkloadJudgement
    from compatgate.canary.workload import Better, MetricSpec

EXITS = {"passed": 0, "failed": 1, "inconclusive": 3}
VERDICTS = {"passed": "no-regression", "failed": "regression", "inconclusive": "inconclusive"}
MINIMUM = 10
_TOLERANCE = 0.05
_EPILOG = """\
A file holds canary JSON lines or plain numbers, one per line; "-" is standard input.
exit status: 0 no regression, 1 regression, 2 bad input, 3 inconclusive (prints missing data)
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.epilog = _EPILOG
    parser.add_argument("baseline", metavar="BASELINE", help="accepted measurements")
    parser.add_argument("candidate", metavar="CANDIDATE", help="measurements to judge")
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
        default=MINIMUM,
        metavar="N",
        help=f"minimum number of values on each side (default: {MINIMUM}); 30 are better",
    )
    parser.add_argument("--unit", default="", help="unit of plain numbers")
    parser.add_argument(
        "--format", choices=("text", "json"), default="text", help="output format (default: text)"
    )


def run(args: argparse.Namespace) -> int:
    """Judge and print the result.

    Raises:
        BadInput: a file cannot be read or is malformed, or an option is out of range.
    """
    _check_options(args)
    judged = _judged(args)
    if args.format == "json":
        import msgspec

        body = {"verdict": VERDICTS[judged.outcome], **judged.to_json()}
        print(msgspec.json.format(msgspec.json.encode(body), indent=2).decode())
    else:
        print(render(judged, VERDICTS[judged.outcome], sys.stdout))
    return EXITS[judged.outcome]


def _check_options(args: argparse.Namespace) -> None:
    if args.tolerance is not None and not 0 < args.tolerance < 1:
        raise BadInput(
            f"{args.tolerance:g} is not a tolerance",
            field="--tolerance",
            value=args.tolerance,
            hint="a share between 0 and 1, such as 0.05 for 5 %",
        )
    if args.repetitions < 5:
        raise BadInput(
            f"{args.repetitions} repetitions are too few",
            field="--repetitions",
            value=args.repetitions,
            hint="at least 5",
        )
    if args.baseline == args.candidate == "-":
        raise BadInput("only one file can be standard input", field="CANDIDATE", value="-")


def _judged(args: argparse.Namespace) -> WorkloadJudgement:
    from compatgate.canary.judge.workload import WorkloadJudgement, judge

    baseline, candidate = _measured(args)
    names = args.metric or [*dict.fromkeys([*baseline.metrics, *candidate.metrics])]
    specs = {name: _spec(args, name, baseline, candidate) for name in names}
    judged = judge(specs, baseline.metrics, candidate.metrics, candidate.checks)
    if not specs and judged.outcome != "failed":
        reason = "neither file has a metric"
        return WorkloadJudgement(
            "inconclusive", reason, candidate.checks, missing=("metrics to compare",)
        )
    return judged


def _measured(args: argparse.Namespace) -> tuple[MeasuredFile, MeasuredFile]:
    """Read both files; plain numbers belong to ``--metric``, or to the other file's only metric."""
    from compatgate.canary.judge.measurements import read_measured

    contents = {side: _content(side, getattr(args, side)) for side in ("baseline", "candidate")}
    name = args.metric[0] if args.metric and len(args.metric) == 1 else None
    read = {
        side: read_measured(data, source=_source(args, side), metric=name, unit=args.unit)
        for side, data in contents.items()
    }
    for side, other in (("baseline", "candidate"), ("candidate", "baseline")):
        lone = list(read[other].metrics)
        if read[side].form == "plain" and read[other].form == "lines" and len(lone) == 1:
            read[side] = read_measured(
                contents[side], source=_source(args, side), metric=lone[0], unit=args.unit
            )
    return read["baseline"], read["candidate"]


def _source(args: argparse.Namespace, side: str) -> str:
    path: str = getattr(args, side)
    return "standard input" if path == "-" else path


def _content(side: str, path: str) -> bytes:
    from compatgate.canary.judge.measurements import MOST_BYTES

    try:
        if path == "-":
            return sys.stdin.buffer.read(MOST_BYTES + 1)
        with open(path, "rb") as file:
            return file.read(MOST_BYTES + 1)
    except OSError as error:
        raise BadInput(
            f"cannot read '{path}'",
            field=side.upper(),
            value=path,
            hint=error.strerror or str(error),
        ) from None


def _spec(
    args: argparse.Namespace, name: str, baseline: MeasuredFile, candidate: MeasuredFile
) -> MetricSpec:
    """Return the spec of a metric: from options, then the files, then the unit."""
    from compatgate.canary.judge.units import parse_unit
    from compatgate.canary.workload import MetricSpec

    stated = [side.stated.get(name, (None, None)) for side in (baseline, candidate)]
    directions: set[Better] = {better for better, _ in stated if better}
    if len(directions) > 1 and not args.better:
        raise BadInput(
            f"the files disagree about which direction of {name} is better",
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
        lines += _labelled("missing", "; ".join(judged.missing), width)
    return "\n".join(lines)


def _metric(metric: MetricJudgement, colour: bool, width: int) -> list[str]:
    style = _COLOURS.get(metric.outcome, "green")
    outcome = paint(metric.outcome.replace("-", " "), style, colour=colour)
    lines = [f"{wrap(metric.name, width)[0]}: {outcome}"]
    lines += [f"  {line}" for line in wrap(metric.reason, width - 2)]
    lines += _labelled("missing", metric.missing or "", width)
    return lines + _labelled("figures", _figures(metric), width)


def _figures(metric: MetricJudgement) -> str:
    found = metric.numbers
    if found is None:
        return ""
    parts = [
        f"median {_pair(found.medians)}{f' {metric.unit}' if metric.unit else ''}",
        f"n {_pair(found.n)}",
        f"noise {100 * found.noise[0]:.2g} % -> {100 * found.noise[1]:.2g} %",
        f"95th percentile x {found.tail_ratio:.3g}",
        f"far values {_pair(found.far)}",
        f"Cliff's delta {found.effect:+.2f}",
    ]
    if found.dropped:
        parts.append(f"{found.dropped} warm-up values of each run ignored")
    return ", ".join(parts)


def _pair(pair: tuple[float, float]) -> str:
    return f"{pair[0]:.4g} -> {pair[1]:.4g}"


def _labelled(label: str, text: str, width: int) -> list[str]:
    if not text:
        return []
    first, *rest = wrap(text, width - 11)
    return [f"  {label:<8} {first}", *(f"           {line}" for line in rest)]
