"""A judgement as text for people: the verdict, then each check and metric with its figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from compatgate.cli.terminal import paint, wants_colour, width_of, wrap

if TYPE_CHECKING:
    from compatgate.canary.judge.judged import JudgedRun
    from compatgate.canary.judge.result import MetricJudgement

_COLOURS = {
    "regression": "red",
    "inconclusive": "yellow",
    "no-baseline": "yellow",
    "no-regression": "green",
}


def render(judged: JudgedRun, verdict: str, stream: TextIO) -> str:
    """The whole answer."""
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
        parts.append(f"{found.dropped} values of warm-up left out of each run")
    return ", ".join(parts)


def _pair(pair: tuple[float, float]) -> str:
    return f"{pair[0]:.4g} -> {pair[1]:.4g}"


def _labelled(label: str, text: str, width: int) -> list[str]:
    if not text:
        return []
    first, *rest = wrap(text, width - 11)
    return [f"  {label:<8} {first}", *(f"           {line}" for line in rest)]
