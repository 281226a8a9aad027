"""Run ``compatgate canary baselines``: list, show, approve and refuse baselines."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from compatgate.cli.commands import Body, Group, Row, columns
from compatgate.cli.gate import Operations, gate_of
from compatgate.errors import BadInput, NotFound
from compatgate.gate_client import ask, ask_all
from compatgate.kit.cli.output import format_json_time
from compatgate.kit.cli.terminal import strip_controls


def _list_lines(found: Body) -> Iterator[str]:
    yield (
        f"{found['id']}: {found['metric']} of {found['workload']} on {found['sku']},"
        f" {found['family']}, version {found['version']}, {found['state']}"
    )
    by = found["decided_by"] or found["proposed_by"]
    yield f"  {format_json_time(found['decided_at'] or found['proposed_at'])} by {by}"
    if found["source"]:
        yield f"  from {found['source']}"
    yield f"  better {found['better']}, tolerance {found['tolerance']:.1%}"
    if found.get("explained"):
        yield f"  explained: {found['explained']}"
    figures, names = found["distribution"], ("min", "median", "p95", "p99", "max")
    named = " ".join(f"{name} {figures[name]:.6g}" for name in names)
    yield f"  {figures['n']} values of {figures['runs']} runs, in {found['unit']}: {named}"
    if near := found.get("nearest"):
        change = "" if near["change"] is None else f"; this is {near['change']:+.1%}"
        yield (
            f"  no version is approved for this family; the nearest family is {near['family']}"
            f" ({near['id']}): median {near['median']:.6g}{change}, to compare, never to judge by"
        )
    most = max((bar["count"] for bar in figures["bins"]), default=0)
    for bar in figures["bins"]:
        mark = "#" * round(40 * bar["count"] / most) if most else ""
        yield f"  {bar['low']:>12.6g}  {mark}".rstrip()
    for run in found["runs"]:
        yield f"  from {run['run']}: {len(run['values'])} values{_describe_sample(run)}"
    for run in found["discarded"]:
        yield f"  not from {run['run']}: {run['reason']}"


def _describe_sample(run: Body) -> str:
    sample = run.get("sample")
    if not sample:
        return ""
    on = [f"driver {sample['driver']}"] if sample["driver"] else []
    on += [f"{name} {version}" for name, version in sample["versions"].items()]
    note = f" ({sample['note']})" if sample.get("note") else ""
    return f", a sample of {sample['measured_at'][:10]}: {', '.join(on)}{note}"


def _approve(args: argparse.Namespace) -> Any:
    """Approve a version, or the proposed ones that a run is part of; others wait."""
    if (args.id is None) == (args.all_of is None):
        hint = "name one version, or --all-of RUN"
        raise BadInput("approve needs a version or a run", field="ID", value=args.id, hint=hint)
    if args.all_of is None:
        return APPROVE.ask(args)
    with gate_of(args) as gate:
        proposed = ask_all(gate, None, Operations.list_baselines, state="proposed")
        details = [ask(gate, Operations.show_baseline, one["id"]) for one in reversed(proposed)]
        of_run = f"{args.all_of}:"  # values are those of a run, or of one of its steps
        runs = {one["id"]: [f"{run['run']}:" for run in one["runs"]] for one in details}
        ids = [number for number in runs if any(n.startswith(of_run) for n in runs[number])]
        if not ids:
            what = f"no proposed baseline has values of run {args.all_of}"
            hint = "compatgate canary baselines list --state proposed"
            raise NotFound(what, field="--all-of", value=args.all_of, hint=hint)
        return [ask(gate, Operations.approve_baseline, number) for number in ids]


def _format(found: Body) -> str:
    return strip_controls("\n".join(_list_lines(found)))


_LISTED = columns("id", "workload", "metric", "sku", "family", "version", "state")
APPROVE = Row(
    "approve_baseline",
    "[ID]\n--all-of RUN  approve every proposed version with values of this run",
    columns=_LISTED,
    text=_format,
    answer=_approve,
)
run = Group(
    {
        "list": Row(
            "list_baselines",
            "--workload W\n--sku SKU  GPU SKU, or cpu\n--metric M\n--state {}",
            {**_LISTED, "runs": "learnt_from", "values": "values"},
        ),
        "show": Row("show_baseline", text=_format),
        "approve": APPROVE,
        "refuse": Row("refuse_baseline", text=_format),
    },
    help="list, show, approve and refuse baselines",
)
