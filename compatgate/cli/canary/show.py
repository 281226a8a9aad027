"""Run ``compatgate canary show``: print a run with its steps, pairs, peaks and evidence."""

from __future__ import annotations

import argparse
from typing import Any

import msgspec

from compatgate.canary.run import Conditions
from compatgate.cli.canary.runs import (
    describe_pool,
    exit_status,
    run_line,
    stack_text,
    wait_for_runs,
)
from compatgate.cli.gate.opening import Operations, gate_of
from compatgate.core.binding import Comparison
from compatgate.gate_client import ask
from compatgate.kit.cli.options import FORMAT, PLACE
from compatgate.kit.cli.output import format_json_time, print_json, print_table
from compatgate.kit.cli.terminal import strip_controls
from compatgate.kit.cli.usage import action


@action(
    "show",
    "show a run and its steps",
    """\
run: ID  run id, as in canary list
--wait   wait until the run ends
""",
    PLACE,
    FORMAT,
    epilog="""\
exit status: 0; with --wait as canary run: 0 passed, 1 failed, 3 inconclusive, error or cancelled
""",
)
def run_show(args: argparse.Namespace) -> int:
    """Print a run."""
    with gate_of(args) as gate:
        result = ask(gate, Operations.show_run, args.run)
        if args.wait:
            (result,) = wait_for_runs(lambda run: ask(gate, Operations.show_run, run), [args.run])
    if args.format == "json":
        print_json(result)
    else:
        _print_run(result)
    return exit_status([result]) if args.wait else 0


def _print_run(run: dict[str, Any]) -> None:

    print(run_line(run))
    host = run["on_host"] or run["host"]
    facts = {
        "suite": run["suite"],
        "target": " / ".join(filter(None, (run["target"], run["pool"]))),
        "entry": run["entry"],
        "stack": stack_text(run["stack"]),
        "image": run["image"],
        "against": _against_text(run),
        "gpu": run["gpu"],
        "driver": run["driver"],
        "nodes": run["nodes"] if run["nodes"] > 1 else None,
        "host": f"{host} ({run['worker']})" if host and run["worker"] else host,
        "attempt": f"{run['attempts']} of {run['max_attempts']}" if run["attempts"] else None,
        "asked for": f"{format_json_time(run['created_at'])} by {run['asked_by']}",
        "started": format_json_time(run["started_at"]),
        "finished": format_json_time(run["finished_at"]),
    }
    for name, value in facts.items():
        if value:
            print(f"  {name:<10} {strip_controls(str(value))}")
    if run["steps"]:
        print()
        rows = [
            (s["name"], s["outcome"], s["exit_code"], strip_controls(s["reason"]))
            for s in run["steps"]
        ]
        print_table(("step", "outcome", "exit", "reason"), rows, empty="")
    _print_pairs(run.get("pairs"))
    _print_witnesses(run["steps"])
    _print_peaks(run["steps"])
    _print_conditions(run["steps"])
    if run.get("evidence"):
        _print_evidence(run["evidence"])


def _print_evidence(found: dict[str, Any]) -> None:
    """Print what the evidence of a run is bound to, and the pool that it is in."""
    bound, gone = found["bound"] or {}, found["discarded"]
    compared = msgspec.convert(bound.get("compared"), Comparison | None)
    print()
    print(f"  evidence   {found['outcome']} on {found['sku']}, driver {found['driver']}")
    print(f"  pool       {describe_pool(found)}")
    lines = {
        "content": bound.get("content") or bound.get("content_why"),
        "image": bound.get("image"),
        "gpus": ", ".join(bound.get("gpus", ())),
        "reference": compared and compared.reference,
        "change": compared and compared.words,
        "discarded": f"by {gone['by']}: {gone['reason']}" if gone else None,
        "not valid": found.get("changed"),
    }
    for name, value in lines.items():
        if value:
            print(f"  {name:<10} {strip_controls(value)}")


def _print_conditions(steps: list[dict[str, Any]]) -> None:
    """Print the conditions under which metrics were measured, where the program recorded them."""
    for step in steps:
        for metric in (step.get("report") or {}).get("metrics", ()):
            result = msgspec.convert(metric.get("conditions"), Conditions | None)
            if result and result.words:
                print(f"  {step['name']} {metric['name']}: {strip_controls(result.words)}")


def _against_text(run: dict[str, Any]) -> str | None:
    """Return the reference in one line; an older server sends none."""
    against = run.get("against")
    if not against:
        return None
    if not against["image"]:
        return f"nothing: {against['reason']}"
    entry = f"entry {against['entry']}: " if against["entry"] else ""
    return f"{entry}{against['image']}" + (f" ({against['reason']})" if against["reason"] else "")


def _print_pairs(pairs: dict[str, Any] | None) -> None:
    """Print the comparison: its outcome, and each metric's change with its interval."""
    if not pairs:
        return
    print(f"\npairs: {pairs['outcome'] or 'undecided'} after {pairs['done']}")
    print(f"  {strip_controls(pairs['reason'])}")
    rows = [
        (m["metric"], m["outcome"], _share(m["effect"]), _interval(m), _share(m["tolerance"])[1:])
        for m in (pairs["judgement"] or {}).get("metrics", ())
    ]
    if rows:
        print_table(("metric", "outcome", "change", "interval", "tolerance"), rows, empty="")


def _share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:+.3g} %"


def _interval(metric: dict[str, Any]) -> str:
    low, high = (_share(metric[end]) or "open" for end in ("low", "high"))
    return "" if metric["effect"] is None else f"{low} to {high}"


def _print_witnesses(steps: list[dict[str, Any]]) -> None:
    """Print what the worker saw of each step; an older server sends nothing."""
    results = [
        (step["name"], witness)
        for step in steps
        if (witness := (step.get("report") or {}).get("witness"))
    ]
    if results:
        print()
    for name, witness in results:
        unseen = "; ".join(f"{what}: {why}" for what, why in witness["not_witnessed"].items())
        print(f"  {name} is {witness['assurance']}, by the {witness['interpreter']}'s interpreter")
        if unseen:
            print(f"    not witnessed: {strip_controls(unseen)}")
        for line in witness["contradictions"]:
            print(f"    contradicted: {strip_controls(line)}")


def _print_peaks(steps: list[dict[str, Any]]) -> None:
    """Print metrics with their share of published peaks; an older server sends none."""
    results = [(step["name"], one) for step in steps for one in step.get("peaks", ())]
    if results:
        print()
    for step, one in results:
        print(f"  {step} {one['metric']}: {strip_controls(one['words'])}")
        print(
            f"    source: {strip_controls(one['source']['title'])}, {one['source']['confidence']}"
        )
