"""Run ``compatgate canary hosts`` and ``drift``: staging hosts, their stacks, and metrics."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import msgspec

from compatgate.canary.fleet import HostStack, compare_hosts, host_stack
from compatgate.canary.history import MAX_HISTORY, MIN_HISTORY, MetricHistory
from compatgate.canary.run import Report
from compatgate.cli.commands import Body, Cell, Row, format_rows, members, time_of
from compatgate.cli.gate import Client, Operations, gate_of
from compatgate.errors import BadInput
from compatgate.gate_client import ask, ask_all
from compatgate.kit.cli.options import FORMAT, PLACE
from compatgate.kit.cli.output import format_json_time, format_table, print_answer
from compatgate.kit.cli.terminal import strip_controls
from compatgate.kit.cli.usage import action

_SHOWN_PARTS = 4
HOSTS = Row(
    "list_hosts",
    "--gpu SKU  GPU",
    {
        "host": "name",
        **members("executor", "gpu", "driver"),
        "busy": lambda host: f"{host['busy']} of {host['slots']}",
        "worker": "worker",
        "last seen": time_of("seen_at"),
        "quiet": lambda host: "; ".join(
            f"{','.join(q['days']) or 'daily'} {q['start']}-{q['end']} {q['timezone']}"
            for q in host["quiet"]
        ),
        "away": lambda host: (
            f"since {format_json_time(host['away_since'])}: {host['away_why']}"
            if host.get("away_since")
            else ""
        ),
    },
    "no hosts; a worker registers its hosts: compatgate worker --hosts FILE",
    limited=False,
)


@action(
    "compare measurements across hosts",
    """\
[runs: RUN ...]  runs to compare (default: the newest of each host)
--suite S        only runs of this suite
--target T       only runs for this target
--limit N = 200  number of recent runs to read
with --metrics:
--metrics        find changes in the history of metrics
--workload W     only metrics of this workload
--gpu SKU        only runs on this GPU
--metric M       only this metric
""",
    PLACE,
    FORMAT,
    epilog="""\
Compares the measured components of the newest run of each host. Prints, for each component, the
value that most hosts have and the hosts that differ.
exit status: 0 all equal, 1 some differ, 2 bad usage, 3 fewer than two hosts with measurements

With --metrics: follows each metric over runs, across stacks and drivers, and prints where its level
changed, and which parts changed with it. At least six runs are needed, three on each side.
exit status: 0 none is worse, 1 a metric became worse by more than its tolerance and stayed so, 2
bad usage, 3 no metric has six runs
""",
)
def run_drift(args: argparse.Namespace) -> int:
    """Compare the stacks of hosts, or follow metrics, and print the differences."""
    if args.metrics:
        return _follow_metrics(args)
    for name in ("workload", "gpu", "metric"):
        if getattr(args, name) is not None:
            raise BadInput("applies only with --metrics", field=f"--{name}", hint="add --metrics")

    with gate_of(args) as gate:
        stacks = _list_stacks(gate, args)
    if len(stacks) < 2 and args.format != "json":
        print(f"hosts with measurements: {len(stacks)}; two are needed", file=sys.stderr)
    result = compare_hosts(stacks)
    rows = []
    for line in result:
        texts = [f"{host}: {value}" for host, value in line.differ.items()]
        texts += [f"not measured on {', '.join(line.silent)}"] if line.silent else []
        share = f"{len(line.agree)}/{len(stacks) - len(line.silent)}"
        rows.append((line.component, line.majority or "(no majority)", share, "; ".join(texts)))
    hosts = [{"host": stack.host, "run": stack.run} for stack in stacks]
    print_answer(
        args.format,
        {"hosts": hosts, "components": result},
        strip_controls(format_table(("COMPONENT", "MAJORITY", "HOSTS", "DIFFERENT"), rows)),
    )
    if len(stacks) < 2:
        return 3
    return int(any(line.differ for line in result))


def _list_stacks(gate: Client, args: argparse.Namespace) -> list[HostStack]:
    """Return the newest measured stack of each host, or those of the named runs."""
    names, places = args.runs, {}
    if not names:
        filters: dict[str, Any] = {"state": "ended", "suite": args.suite, "target": args.target}
        rows = ask_all(gate, args.limit, Operations.list_runs, **filters)
        names = [row["id"] for row in rows if row.get("source") is None]
        places = {row["id"]: row["on_host"] or row["host"] for row in rows}
    results: dict[str, HostStack] = {}
    for name in names:
        if places.get(name) in results:
            continue
        body = ask(gate, Operations.show_run, name)
        host = body["on_host"] or body["host"]
        reports = (
            msgspec.convert(step["report"], Report) for step in body["steps"] if step["report"]
        )
        envs: list[Any] = [report.env for report in reports if report.env]
        if host and envs and host not in results:
            results[host] = host_stack(host, envs, body["id"])
    return [results[host] for host in sorted(results)]


def _follow_metrics(args: argparse.Namespace) -> int:
    """Print the changes of metrics over finished runs."""
    if args.runs or args.suite or args.target:
        hint = "choose with --workload, --gpu and --metric"
        raise BadInput("does not accept a run, suite or target", field="--metrics", hint=hint)
    if args.limit > MAX_HISTORY:
        hint = f"at most {MAX_HISTORY}"
        raise BadInput("is too large", field="--limit", value=args.limit, hint=hint)
    filters = {"workload": args.workload, "gpu": args.gpu, "metric": args.metric}
    with gate_of(args) as gate:
        operation = Operations.list_metric_histories
        result = ask_all(gate, None, operation, **filters, runs=args.limit)
    followed = [one for one in result if len(one["points"]) >= MIN_HISTORY]
    lines = [{**one, **change} for one in result for change in one["changes"]]
    empty = f"no change of level in {len(followed)} metrics with at least {MIN_HISTORY} runs"
    print_answer(args.format, result, format_rows(lines, _CHANGES) if lines else empty)
    if not followed:
        return 3
    return int(any(one.is_worse_now for one in msgspec.convert(result, list[MetricHistory])))


def _name_effect(change: Body) -> str:
    effect = "worse" if change["worse"] else "better"
    beyond = "" if change["beyond"] else ", within tolerance"
    return f"{effect}{beyond}" if change["stands"] else f"{effect}{beyond}, over since"


def _name_parts(change: Body) -> str:
    parts = change["parts"]
    texts = [
        f"{one['part']} {_shorten(one['before'])} to {_shorten(one['after'])}"
        for one in parts[:_SHOWN_PARTS]
    ]
    texts += [f"{len(parts) - _SHOWN_PARTS} more"] if len(parts) > _SHOWN_PARTS else []
    return "; ".join(texts) or "nothing that was measured"


def _shorten(value: str) -> str:
    """Return a version, or the start of a digest."""
    name, at, digest = value.rpartition("sha256:")
    return f"{name}{at}{digest[:12]}" if at else value or "none"


_CHANGES: dict[str, Cell] = {
    "metric": lambda one: f"{one['step']}/{one['metric']}",
    "gpu": lambda one: one["gpu"] or "none",
    "since": time_of("at"),
    "run": "run",
    "change": lambda one: f"{100 * one['change']:+.1f} %",
    "level": lambda one: f"{one['before']:.4g} to {one['after']:.4g} {one['unit']}",
    "": _name_effect,
    "changed with it": _name_parts,
}
"""Columns of changes of a metric's level."""
