"""Judge pairs: ``compatgate canary judge PAIRS --paired``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, TextIO

from compatgate.canary.judge.noise import Noise
from compatgate.errors import BadInput
from compatgate.kit.cli.output import open_input
from compatgate.kit.cli.terminal import paint, wants_colour, width_of, wrap, wrap_beside

if TYPE_CHECKING:
    from compatgate.canary.judge.paired.blocks import PairedJudgement, PairedMetric
    from compatgate.canary.judge.paired.lines import PairedFile
    from compatgate.canary.judge.paired.suite import Knowledge
    from compatgate.canary.workload import MetricSpec

TOLERANCE = 0.05
COLOURS = {
    "regression": "red",
    "inconclusive": "yellow",
    "no-baseline": "yellow",
    "no-regression": "green",
}
USAGE = """\
--paired                  judge one file with pairs of reference and candidate
--history FILE ...        with --paired: pairs of an earlier session, to estimate the noise; may be
                          repeated
--correction {holm,benjamini-hochberg}
    with --paired: limit the probability of a false failure (holm, the default), or the share of
    false regressions
--peak M=VALUE ...        published peak of a metric, in its unit; may be repeated
--explained M=REASON ...  reason why an improvement by more than 2 x, or a value above the peak, is
                          real; may be repeated
"""


def check_options(args: argparse.Namespace) -> None:
    """Check that the options fit together."""
    if args.paired:
        if args.candidate is not None:
            what, hint = "--paired takes one file with both arms", "omit CANDIDATE"
            raise BadInput(what, field="CANDIDATE", value=args.candidate, hint=hint)
        for option in ("repetitions", "unit"):
            if getattr(args, option):
                raise BadInput(f"--{option} cannot be combined with --paired", field=f"--{option}")
        return
    if args.candidate is None:
        hint = "name two files, or one file of pairs with --paired"
        raise BadInput("the candidate's file is missing", field="CANDIDATE", hint=hint)
    for option in ("history", "correction"):
        if getattr(args, option):
            raise BadInput(f"--{option} needs --paired", field=f"--{option}")


def judge(args: argparse.Namespace) -> PairedJudgement:
    """Judge a file of pairs."""
    from compatgate.canary.judge.paired.suite import judge_pairs

    if [args.baseline, *(args.history)].count("-") > 1:
        raise BadInput("only one file can be standard input", field="--history", value="-")
    found = _read(args.baseline, "PAIRS")
    history = [_read(path, "--history") for path in args.history]
    names = list(dict.fromkeys(args.metric or found.metrics))
    specs = {name: _specify(args, name, found) for name in names}
    return judge_pairs(
        specs,
        found.metrics,
        known=_gather(args, specs, history),
        checks=found.checks,
        reference_checks=found.reference_checks,
        correction=args.correction or "holm",
    )


def _read(path: str, field: str) -> PairedFile:
    from compatgate.canary.judge.measurements import MAX_BYTES
    from compatgate.canary.judge.paired.lines import read_pairs

    with open_input(path, field) as file:
        content = file.read(MAX_BYTES + 1)
    return read_pairs(content, source="standard input" if path == "-" else path)


def _specify(args: argparse.Namespace, name: str, found: PairedFile) -> MetricSpec:
    """Return the spec of a metric: from options, then the file, then the unit."""
    from compatgate.canary.judge.prepare import parse_unit
    from compatgate.canary.workload import MetricSpec

    better, tolerance = found.stated.get(name, (None, None))
    unit = found.metrics[name].unit if name in found.metrics else ""
    better = args.better or better or parse_unit(unit).better or "either"
    return MetricSpec(unit, better, args.tolerance or tolerance or TOLERANCE)


def _gather(
    args: argparse.Namespace, specs: dict[str, MetricSpec], history: list[PairedFile]
) -> dict[str, Knowledge]:
    from compatgate.canary.judge.paired.suite import Knowledge

    reasons, peaks = read_explained(args, specs), read_peaks(args, specs)
    return {
        name: Knowledge(_learn(name, spec, history), peaks.get(name), reasons.get(name, ""))
        for name, spec in specs.items()
    }


def _learn(name: str, spec: MetricSpec, history: list[PairedFile]) -> Noise | None:
    """Learn the noise of a metric from the sessions in which it can be compared."""
    from compatgate.canary.judge.paired.blocks import (
        compute_log_ratios,
        counts_events,
        find_refusal,
        learn_noise,
    )

    sessions = [file.metrics[name] for file in history if name in file.metrics]
    return learn_noise(
        compute_log_ratios(session)
        for session in sessions
        if not counts_events(session) and not find_refusal(session, spec.tolerance)
    )


def read_explained(args: argparse.Namespace, specs: dict[str, MetricSpec]) -> dict[str, str]:
    """Return by metric why a person accepts what is implausible."""
    return _split(args.explained, "--explained", specs)


def read_peaks(args: argparse.Namespace, specs: dict[str, MetricSpec]) -> dict[str, float]:
    """Return the stated peaks by metric."""
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
    found = {}
    for option in options:
        name, equals, text = option.partition("=")
        if not equals or not text.strip():
            hint = f"write {field} METRIC=..."
            raise BadInput(f"'{option}' has no value", field=field, value=option, hint=hint)
        if name not in specs:
            hint = f"metrics: {', '.join(list(specs)[:10])}"
            raise BadInput(f"metric {name} does not exist", field=field, value=name, hint=hint)
        found[name] = text.strip()
    return found


def render(judged: PairedJudgement, verdict: str, stream: TextIO) -> str:
    """Return the result as text."""
    colour, width = wants_colour(stream), width_of(stream) - 2
    lines = [paint(verdict.replace("-", " ").upper(), "bold", COLOURS[verdict], colour=colour)]
    for check in judged.checks:
        if not check.ok:
            lines += ["", *wrap(f"check {check.name} failed: {check.message}".strip(": "), width)]
    for metric in judged.metrics:
        lines += ["", *_render_metric(metric, colour, width)]
    if not judged.metrics or judged.reason.startswith("the reference"):
        lines += ["", *wrap(judged.reason, width)]
    return "\n".join(lines)


def _render_metric(metric: PairedMetric, colour: bool, width: int) -> list[str]:
    outcome = paint(metric.outcome, COLOURS.get(metric.outcome, "green"), colour=colour)
    lines = [f"{wrap(metric.metric, width)[0]}: {outcome}"]
    lines += [f"  {line}" for line in wrap(metric.reason, width - 2)]
    figures = [f"{metric.pairs} pairs"]
    if metric.noise is not None:
        figures.append(f"noise of a pair {100 * metric.noise:.2g} %")
    if metric.history:
        figures.append(f"other metrics and sessions add {metric.history:.3g} degrees of freedom")
    lines += label_lines("missing", metric.missing or "", width)
    lines += label_lines("figures", ", ".join(figures), width)
    return lines + label_lines("accepted", metric.explained, width)


def label_lines(label: str, text: str, width: int) -> list[str]:
    """Return a text beside its label, wrapped; nothing for an empty text."""
    return wrap_beside(f"  {label:<8} ", text, width) if text else []
