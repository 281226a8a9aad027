"""Run ``compatgate canary hosts`` and ``drift``: staging hosts, their stacks, and metrics."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from compatgate.canary.run import Report
from compatgate.cli.commands import Row, time_of
from compatgate.cli.gate.opening import Operations, gate_of
from compatgate.errors import BadInput
from compatgate.gate_client import ask, ask_all
from compatgate.kit.cli.options import FORMAT, PLACE
from compatgate.kit.cli.output import format_json_time, format_table, print_json, print_table
from compatgate.kit.cli.parser import positive_count
from compatgate.kit.cli.terminal import strip_controls
from compatgate.kit.cli.usage import action

if TYPE_CHECKING:
    from compatgate.canary.fleet import ComponentDrift, HostStack
    from compatgate.client import Client


def _quiet(host: dict[str, Any]) -> str:
    return "; ".join(
        f"{','.join(q['days']) or 'daily'} {q['start']}-{q['end']} {q['timezone']}"
        for q in host["quiet"]
    )


def _away(host: dict[str, Any]) -> str:
    since = host.get("away_since")
    return strip_controls(f"since {format_json_time(since)}: {host['away_why']}") if since else ""


HOSTS = Row(
    "hosts",
    "list_hosts",
    "list the staging hosts that workers serve",
    "--gpu SKU  GPU",
    {
        "host": "name",
        **{name: name for name in ("executor", "gpu", "driver")},
        "busy": lambda host: f"{host['busy']} of {host['slots']}",
        "worker": "worker",
        "last seen": time_of("seen_at"),
        "quiet": _quiet,
        "away": _away,
    },
    "no hosts; a worker registers its hosts: compatgate worker --hosts FILE",
    limited=False,
)


@action(
    "drift",
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
    limit={"type": positive_count},
)
def run_drift(args: argparse.Namespace) -> int:
    """Compare the stacks of hosts, or follow metrics, and print the differences."""
    if args.metrics:
        return _follow_metrics(args)
    for name in ("workload", "gpu", "metric"):
        if getattr(args, name) is not None:
            raise BadInput("applies only with --metrics", field=f"--{name}", hint="add --metrics")
    from compatgate.canary.fleet import compare_hosts

    with gate_of(args) as gate:
        stacks = _stacks(gate, args)
    result = compare_hosts(stacks)
    if args.format == "json":
        hosts = [{"host": stack.host, "run": stack.run} for stack in stacks]
        print_json({"hosts": hosts, "components": result})
    else:
        _print(stacks, result)
    if len(stacks) < 2:
        return 3
    return int(any(line.differ for line in result))


def _stacks(gate: Client, args: argparse.Namespace) -> list[HostStack]:
    """Return the newest measured stack of each host."""
    from compatgate.canary.fleet import host_stack

    results: dict[str, HostStack] = {}
    for body in _runs(gate, args, results):
        host = body["on_host"] or body["host"]
        envs = list(_envs(body))
        if host and envs and host not in results:
            results[host] = host_stack(host, envs, body["id"])
    return [results[host] for host in sorted(results)]


def _runs(
    gate: Client, args: argparse.Namespace, done: dict[str, HostStack]
) -> Iterator[dict[str, Any]]:
    if args.runs:
        yield from (ask(gate, Operations.show_run, run) for run in args.runs)
        return
    filters: dict[str, Any] = {"state": "ended", "suite": args.suite, "target": args.target}
    for row in ask_all(gate, args.limit, Operations.list_runs, **filters):
        if row.get("source") is None and (row["on_host"] or row["host"]) not in done:
            yield ask(gate, Operations.show_run, row["id"])


def _envs(body: dict[str, Any]) -> Iterator[Any]:
    for step in body["steps"]:
        report = step["report"] and msgspec.convert(step["report"], Report)
        if report and report.env:
            yield report.env


def _print(stacks: Sequence[HostStack], found: Sequence[ComponentDrift]) -> None:
    if len(stacks) < 2:
        print(f"hosts with measurements: {len(stacks)}; two are needed", file=sys.stderr)
    rows = [
        (
            line.component,
            strip_controls(line.majority or "(no majority)"),
            f"{len(line.agree)}/{len(stacks) - len(line.silent)}",
            strip_controls(_differences(line)),
        )
        for line in found
    ]
    print(format_table(("COMPONENT", "MAJORITY", "HOSTS", "DIFFERENT"), rows))


def _differences(line: ComponentDrift) -> str:
    texts = [f"{host}: {value}" for host, value in line.differ.items()]
    if line.silent:
        texts.append(f"not measured on {', '.join(line.silent)}")
    return "; ".join(texts)


_SHOWN_PARTS = 4


def _follow_metrics(args: argparse.Namespace) -> int:
    """Print the changes of metrics over finished runs."""
    from compatgate.canary.history import MetricHistory
    from compatgate.canary.judge.change_points import MAX_HISTORY, MIN_HISTORY

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
    if args.format == "json":
        print_json(result)
    else:
        _print_changes(result)
    if any(len(one["points"]) >= MIN_HISTORY for one in result):
        return int(any(one.is_worse_now for one in msgspec.convert(result, list[MetricHistory])))
    return 3


def _print_changes(found: Sequence[dict[str, Any]]) -> None:
    from compatgate.canary.judge.change_points import MIN_HISTORY

    rows = [
        (
            f"{one['step']}/{one['metric']}",
            one["gpu"] or "none",
            format_json_time(change["at"]),
            change["run"],
            f"{100 * change['change']:+.1f} %",
            f"{change['before']:.4g} to {change['after']:.4g} {one['unit']}",
            _name_effect(change),
            strip_controls(_name_parts(change["parts"])),
        )
        for one in found
        for change in one["changes"]
    ]
    enough = sum(len(one["points"]) >= MIN_HISTORY for one in found)
    empty = f"no change of level in {enough} metrics with at least {MIN_HISTORY} runs"
    head = ("metric", "gpu", "since", "run", "change", "level", "", "changed with it")
    print_table(head, rows, empty=empty)


def _name_effect(change: dict[str, Any]) -> str:
    effect = "worse" if change["worse"] else "better"
    beyond = "" if change["beyond"] else ", within tolerance"
    return f"{effect}{beyond}" if change["stands"] else f"{effect}{beyond}, over since"


def _name_parts(parts: Sequence[dict[str, Any]]) -> str:
    texts = [
        f"{one['part']} {_shorten(one['before'])} to {_shorten(one['after'])}"
        for one in parts[:_SHOWN_PARTS]
    ]
    more = len(parts) - len(texts)
    return "; ".join([*texts, *([f"{more} more"] if more else [])]) or "nothing that was measured"


def _shorten(value: str) -> str:
    """Return a version, or the start of a digest."""
    name, at, digest = value.rpartition("sha256:")
    return f"{name}{at}{digest[:12]}" if at else value or "none"
