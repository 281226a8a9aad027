"""Run ``compatgate canary`` hosts, fleet and drift: staging hosts and their metrics."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from compatgate.canary.fleet import LEAST_HOSTS, HostValues, RankedHost, rank_hosts
from compatgate.canary.history import MAX_HISTORY, MIN_HISTORY, MetricHistory
from compatgate.catalog import load_facts
from compatgate.cli.canary.runs import run_line, wait_for_runs
from compatgate.cli.commands import Body, Row, columns, format_rows
from compatgate.cli.gate import Client, Operations, asking
from compatgate.core.gpus import resolve_gpu
from compatgate.core.stack import parse_stack_text
from compatgate.documents.sources import suggest_name
from compatgate.errors import BadInput, NotFound
from compatgate.gate_client import ask, ask_all
from compatgate.kit.cli.output import format_cells, format_json_time, print_answer, say

_SHOWN_PARTS = 4
_HEAD = ("HOST", "", "WORST METRIC", "VALUE", "FLEET", "WORSE BY", "INTERVAL", "SLOW FROM")
_DIGEST = re.compile(r"(sha256:.{12}).*$", re.DOTALL)


def _list_quiet(host: Body) -> str:
    return "; ".join(
        f"{','.join(one['days']) or 'daily'} {one['start']}-{one['end']} {one['timezone']}"
        for one in host["quiet"]
    )


def _describe_absence(host: Body) -> str:
    since = format_json_time(host.get("away_since"))
    return f"since {since}: {host['away_why']}" if since else ""


HOSTS = Row(
    "list_hosts",
    "--gpu SKU  GPU",
    columns(
        *("host: name", "executor", "gpu", "driver"),
        ("busy", lambda host: f"{host['busy']} of {host['slots']}"),
        *("worker", "last seen: seen_at", ("quiet", _list_quiet), ("away", _describe_absence)),
    ),
    "no hosts; a worker registers its hosts: compatgate worker --hosts FILE",
    limited=False,
)


@asking(
    "find changes in the history of metrics",
    """\
--metrics        follow metrics over runs (the default)
--workload W     only metrics of this workload
--gpu SKU        only runs on this GPU
--metric M       only this metric
--limit N = 200  number of recent runs to read
""",
    epilog="""\
Follows each metric over runs, across stacks and drivers, and prints where its level changed, and
which parts changed with it. At least six runs are needed, three on each side. Nodes that differ:
compatgate nodes drift.
exit status: 0 none is worse, 1 a metric became worse by more than its tolerance and stayed so, 2
bad usage, 3 no metric has six runs
""",
)
def run_drift(args: argparse.Namespace, gate: Client) -> int:
    """Print the changes of metrics over finished runs."""
    if args.limit > MAX_HISTORY:
        hint = f"at most {MAX_HISTORY}"
        raise BadInput("is too large", field="--limit", value=args.limit, hint=hint)
    filters = {"workload": args.workload, "gpu": args.gpu, "metric": args.metric}
    result = ask_all(gate, None, Operations.list_metric_histories, **filters, runs=args.limit)
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
    parts, texts = change["parts"], []
    for one in parts[:_SHOWN_PARTS]:
        before, after = (_DIGEST.sub(r"\1", one[side]) or "none" for side in ("before", "after"))
        texts.append(f"{one['part']} {before} to {after}")
    texts += [f"{len(parts) - _SHOWN_PARTS} more"] if len(parts) > _SHOWN_PARTS else []
    return "; ".join(texts) or "nothing that was measured"


_CHANGES = columns(
    ("metric", lambda one: f"{one['step']}/{one['metric']}"),
    *(("gpu", lambda one: one["gpu"] or "none"), "since: at", "run"),
    ("change", lambda one: f"{100 * one['change']:+.1f} %"),
    ("level", lambda one: f"{one['before']:.4g} to {one['after']:.4g} {one['unit']}"),
    ("effect", _name_effect),
    ("changed with it", _name_parts),
)
"""Columns of changes of a metric's level."""


@asking(
    "run a suite on every host of a pool, and name the slow ones",
    """\
--suite S         suite to run on each host
--target T        target; runs on hosts with the GPUs of its pools
--pool P          only this pool of the target
--host H ...      only this host; may be repeated
--stack LIST      stack under test, for example cuda=12.4,torch=2.4.1+cu124
--image REF       image under test
--priority N = 0  priority of the runs
--runs ID         rank these runs, and wait for those in progress
--detach          queue the runs, print their ids and exit with 0
--top N = 20      number of hosts to print
""",
    epilog="""\
Hosts are ranked by their worst deviation from the median of all hosts. A host is slow if a metric
is worse than that by more than its tolerance and by more than the spread of the hosts (MAD)
explains: at most 1 % of fleets of equal hosts get a slow one. Four hosts are needed.
A slurm or kubernetes host stands for several nodes: name them in its each_node to rank nodes.
exit status: 0 none is slow and all runs passed, 1 a host is slow or its run failed, 2 bad input,
3 too few hosts, or a run ended without a result
""",
    priority={"type": int},
    runs={"nargs": "+"},
)
def run_fleet(args: argparse.Namespace, gate: Client) -> int:
    """Run the suite on each host, wait, and rank the hosts."""
    if not args.runs and not (args.suite and args.target):
        hint = "name both, or --runs with the ids of earlier ones"
        raise BadInput("a fleet run needs a suite and a target", field="--suite", hint=hint)
    ids = list(args.runs or _submit(gate, args))
    if args.detach:
        print("\n".join(ids))
        return 0
    say(f"to resume: compatgate canary fleet --runs {' '.join(ids)}")
    runs = wait_for_runs(lambda run: ask(gate, Operations.show_run, run), ids)
    workloads = ask_all(gate, None, Operations.list_workloads)
    specs = {one["name"]: one["metrics"] for one in workloads}
    ranked = rank_hosts(_values(runs, specs))
    brief = [{name: run[name] for name in ("id", "state", "on_host")} for run in runs]
    slow = [one.host for one in ranked if one.slow]
    answer = {"runs": brief, "slow": slow, "hosts": ranked}
    lines = [run_line(run) for run in runs if run["state"] != "passed"]
    if len(ranked) < LEAST_HOSTS:
        lines.append(f"hosts with common metrics: {len(ranked)}; {LEAST_HOSTS} are needed")
    else:
        lines.append(format_cells(_HEAD, map(_row, ranked[: args.top])))
        none = f"none of {len(ranked)} hosts is slow"
        lines.append(f"slow: {', '.join(slow)}" if slow else none)
    print_answer(args.format, answer, "\n".join(lines))
    states = {run["state"] for run in runs}
    if slow or "failed" in states:
        return 1
    return 0 if states == {"passed"} and len(ranked) >= LEAST_HOSTS else 3


def _submit(gate: Client, args: argparse.Namespace) -> Iterator[str]:
    body = {"target": args.target, "priority": args.priority, "image": args.image}
    if args.image is not None:
        body["against"] = "none"  # hosts are compared, not images
    if args.stack is not None:
        body["stack"] = parse_stack_text(args.stack)
    for host, pool in _hosts(gate, args):
        made = ask(gate, Operations.submit_runs, args.suite, **body, pool=pool, host=host)["runs"]
        yield from (run["id"] for run in made)


def _hosts(gate: Client, args: argparse.Namespace) -> list[tuple[str, str]]:
    """Return each host that a pool of the target is made of, with the pool."""
    pools = ask_all(gate, None, Operations.list_target_pools, args.target)
    if args.pool is not None and args.pool not in (pool["name"] for pool in pools):
        hint = suggest_name(args.pool, [pool["name"] for pool in pools])
        what = f"the target {args.target!r} has no pool {args.pool!r}"
        raise NotFound(what, field="--pool", value=args.pool, hint=hint)
    gpus = load_facts([]).gpus
    skus: dict[str, str] = {}
    for pool in pools:
        if args.pool in (None, pool["name"]):
            skus.setdefault(resolve_gpu(pool["gpu"], gpus).sku, pool["name"])
    known = {host["name"]: host["gpu"] for host in ask_all(gate, None, Operations.list_hosts)}
    for name in args.host:
        if name not in known:
            hint = suggest_name(name, known)
            what = f"no worker has registered the host {name!r}"
            raise NotFound(what, field="--host", value=name, hint=hint)
    wanted = [name for name in known if (not args.host or name in args.host)]
    fitting = [(name, skus[known[name]]) for name in wanted if known[name] in skus]
    if not fitting:
        hint = "a worker registers its hosts: compatgate worker --hosts FILE"
        what = f"no host has a GPU of {args.target}: {', '.join(sorted(skus))}"
        raise BadInput(what, field="--target", value=args.target, hint=hint)
    return fitting


def _values(
    runs: Sequence[dict[str, Any]], specs: dict[str, dict[str, Any]]
) -> Iterator[HostValues]:
    """Yield the values of each metric that a workload declares, of steps that ended."""
    for run in runs:
        for step in run.get("steps", ()):
            declared = specs.get(step["workload"], {})
            for metric in (step["report"] or {}).get("metrics", ()):
                spec = declared.get(metric["name"])
                if spec is None or step["outcome"] not in ("passed", "failed", "inconclusive"):
                    continue
                yield HostValues(
                    host=run["on_host"] or run["host"] or run["id"],
                    metric=f"{step['name']}/{metric['name']}",
                    unit=metric["unit"],
                    better=spec["better"],
                    tolerance=spec["tolerance"],
                    values=tuple(metric["values"]),
                )


def _row(one: RankedHost) -> tuple[object, ...]:
    worst = one.deviations[0]
    return (
        one.host,
        "SLOW" if one.slow else "",
        worst.metric,
        f"{worst.value:.4g} {worst.unit}",
        f"{worst.fleet:.4g} {worst.unit}",
        f"{100 * worst.share:+.1f} %",
        f"{100 * worst.low:+.1f} to {100 * worst.high:+.1f} %",
        f"{100 * worst.limit:+.1f} %",
    )
