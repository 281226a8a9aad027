"""What the judge said of a metric, in sentences. Pure."""

from __future__ import annotations

from compatgate.canary.judge.result import MetricJudgement, Numbers

_BETTER = {
    "lower": "Lower is better",
    "higher": "Higher is better",
    "either": "It should stay as it is, in either direction",
}


def explain(metric: MetricJudgement) -> list[str]:
    """Which change would count, what changed, how sure that is, and what else was looked at."""
    lines = [f"{_BETTER[metric.better]}; a change of {_percent(metric.tolerance)} counts."]
    if metric.numbers is not None:
        lines += [_change(metric, metric.numbers), _sure(metric, metric.numbers)]
        lines += [_noise(metric.numbers)]
        if metric.numbers.dropped:
            lines.append(f"{metric.numbers.dropped} leading values of each run were warm-up.")
    others = [a for a in metric.aspects if a.name in ("tail", "spread") and a.outcome != "ok"]
    lines += [_sentence(aspect.reason) for aspect in others]
    if metric.missing:
        lines.append(f"To settle it: {metric.missing}.")
    return lines


def signed(share: float) -> str:
    """``+12.1 %``; a factor where it is large."""
    return f"x {1 + share:.3g}" if share >= 9 else f"{100 * share:+.1f} %"


def _change(metric: MetricJudgement, found: Numbers) -> str:
    unit = f" {metric.unit}" if metric.unit not in ("", "1") else ""
    before, after = found.medians
    return (
        f"The middle of {found.n[1]} values is {after:.4g}{unit}; of the baseline's {found.n[0]} "
        f"values it is {before:.4g}{unit}: {_moved(found.ratio - 1)}."
    )


def _moved(share: float) -> str:
    if round(abs(share), 4) == 0:
        return "no change"
    return f"{_percent(abs(share))} {'higher' if share > 0 else 'lower'}"


def _sure(metric: MetricJudgement, found: Numbers) -> str:
    low, high = found.interval
    if low is None and high is None:
        return "There are too few values to say between which bounds the change lies."
    between = " and ".join(
        signed(bound - 1) if bound is not None else "no bound" for bound in (low, high)
    )
    where = {True: "all of it beyond", False: "all of it within", None: "partly beyond"}
    return (
        f"With 98 % confidence the change lies between {between}, "
        f"{where[_beyond(metric, low, high)]} the tolerance."
    )


def _beyond(metric: MetricJudgement, low: float | None, high: float | None) -> bool | None:
    """Whether an interval of ratios is worse than tolerated: all of it, none of it, or neither."""
    worst_up, worst_down = 1 + metric.tolerance, 1 - metric.tolerance
    up, down = metric.better != "higher", metric.better != "lower"
    if up and low is not None and low >= worst_up:
        return True
    if down and high is not None and high <= worst_down:
        return True
    reaches_up = up and (high is None or high >= worst_up)
    reaches_down = down and (low is None or low <= worst_down)
    return None if reaches_up or reaches_down else False


def _noise(found: Numbers) -> str:
    before, after = (_percent(share) for share in found.noise)
    return f"One repetition varies by {after}; in the baseline by {before}."


def _percent(share: float) -> str:
    text = f"{100 * share:.1f}" if share < 0.0995 else f"{100 * share:.3g}"
    return f"{text.removesuffix('.0')} %"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
