"""Run ``compatgate canary show``: print a run with its steps, pairs, peaks and evidence."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

import msgspec

from compatgate.canary.run import Conditions
from compatgate.cli.canary.runs import describe_pool, exit_status, run_line, wait_for_runs
from compatgate.cli.commands import Body, Cell, format_rows, members
from compatgate.cli.gate import Client, Operations, asking
from compatgate.core.binding import Comparison
from compatgate.gate_client import ask
from compatgate.kit.cli.output import format_fields, format_json_time, print_answer
from compatgate.kit.cli.terminal import strip_controls


@asking(
    "show a run and its steps",
    """\
run: ID  run id, as in canary list
--wait   wait until the run ends
""",
    epilog="""\
exit status: 0; with --wait as canary run: 0 passed, 1 failed, 3 inconclusive, error or cancelled
""",
)
def run_show(args: argparse.Namespace, gate: Client) -> int:
    """Print a run."""
    run = ask(gate, Operations.show_run, args.run)
    if args.wait:
        (run,) = wait_for_runs(lambda name: ask(gate, Operations.show_run, name), [args.run])
    print_answer(args.format, run, lambda: _format_run(run))
    return exit_status([run]) if args.wait else 0


def _format_run(run: Body) -> str:
    """Return a run with everything that is known of it; an older server sends less."""
    host = run["on_host"] or run["host"]
    fields = {
        "suite": run["suite"],
        "target": " / ".join(filter(None, (run["target"], run["pool"]))),
        "entry": run["entry"],
        "stack": ",".join(
            f"{name}={'+'.join(value) if isinstance(value, list) else value}"
            for name, value in run["stack"].items()
        ),
        "image": run["image"],
        "against": _describe_reference(run.get("against")),
        "gpu": run["gpu"],
        "driver": run["driver"],
        "nodes": run["nodes"] if run["nodes"] > 1 else None,
        "host": f"{host} ({run['worker']})" if host and run["worker"] else host,
        "attempt": f"{run['attempts']} of {run['max_attempts']}" if run["attempts"] else None,
        "asked for": f"{format_json_time(run['created_at'])} by {run['asked_by']}",
        "started": format_json_time(run["started_at"]),
        "finished": format_json_time(run["finished_at"]),
    }
    steps = run["steps"]
    parts = [f"{run_line(run)}\n{format_fields(fields, '  ')}"]
    if steps:
        columns = {**members("outcome"), "exit": "exit_code", **members("reason")}
        parts.append(format_rows(steps, {"step": "name", **columns}))
    if pairs := run.get("pairs"):
        parts.append("\n".join(_list_pairs(pairs)))
    parts += map("\n".join, (_list_witnesses(steps), _list_figures(steps)))
    if evidence := run.get("evidence"):
        parts.append(_format_evidence(evidence))
    return strip_controls("\n\n".join(filter(None, parts)))


def _describe_reference(against: Body | None) -> str:
    if not against:
        return ""
    if not against["image"]:
        return f"nothing: {against['reason']}"
    entry = f"entry {against['entry']}: " if against["entry"] else ""
    return f"{entry}{against['image']}" + (f" ({against['reason']})" if against["reason"] else "")


def _list_pairs(pairs: Body) -> Iterator[str]:
    """Yield the outcome of a comparison, and each metric's change with its interval."""
    yield f"pairs: {pairs['outcome'] or 'undecided'} after {pairs['done']}"
    yield f"  {pairs['reason']}"
    if metrics := (pairs["judgement"] or {}).get("metrics"):
        yield format_rows(metrics, _PAIRS)


def _share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:+.3g} %"


def _interval(metric: Body) -> str:
    low, high = (_share(metric[end]) or "open" for end in ("low", "high"))
    return "" if metric["effect"] is None else f"{low} to {high}"


_PAIRS: dict[str, Cell] = {
    **members("metric", "outcome"),
    "change": lambda metric: _share(metric["effect"]),
    "interval": _interval,
    "tolerance": lambda metric: _share(metric["tolerance"])[1:],
}


def _list_witnesses(steps: Sequence[Body]) -> Iterator[str]:
    """Yield what the worker saw of each step."""
    for step in steps:
        if not (witness := (step["report"] or {}).get("witness")):
            continue
        by = f"by the {witness['interpreter']}'s interpreter"
        yield f"  {step['name']} is {witness['assurance']}, {by}"
        if witness["not_witnessed"]:
            unseen = "; ".join(f"{what}: {why}" for what, why in witness["not_witnessed"].items())
            yield f"    not witnessed: {unseen}"
        yield from (f"    contradicted: {line}" for line in witness["contradictions"])


def _list_figures(steps: Sequence[Body]) -> Iterator[str]:
    """Yield the shares of published peaks, and the conditions of metrics."""
    for step in steps:
        for one in step.get("peaks", ()):
            yield f"  {step['name']} {one['metric']}: {one['words']}"
            yield f"    source: {one['source']['title']}, {one['source']['confidence']}"
    for step in steps:
        for metric in (step["report"] or {}).get("metrics", ()):
            result = msgspec.convert(metric.get("conditions"), Conditions | None)
            if result and result.words:
                yield f"  {step['name']} {metric['name']}: {result.words}"


def _format_evidence(found: Body) -> str:
    """Return what the evidence of a run is bound to, and the pool that it is in."""
    bound, gone = found["bound"] or {}, found["discarded"]
    compared = msgspec.convert(bound.get("compared"), Comparison | None)
    fields = {
        "evidence": f"{found['outcome']} on {found['sku']}, driver {found['driver']}",
        "pool": describe_pool(found),
        "content": bound.get("content") or bound.get("content_why"),
        "image": bound.get("image"),
        "gpus": ", ".join(bound.get("gpus", ())),
        "reference": compared and compared.reference,
        "change": compared and compared.words,
        "discarded": f"by {gone['by']}: {gone['reason']}" if gone else None,
        "not valid": found.get("changed"),
    }
    return format_fields(fields, "  ")
