"""Run ``compatgate canary`` hosts and drift: staging hosts and their metrics."""

from __future__ import annotations

import argparse

import msgspec

from compatgate.canary.history import MAX_HISTORY, MIN_HISTORY, MetricHistory
from compatgate.cli.commands import Body, Row, columns, format_rows
from compatgate.cli.gate import Operations, gate_of
from compatgate.errors import BadInput
from compatgate.gate_client import ask_all
from compatgate.kit.cli.options import FORMAT, PLACE
from compatgate.kit.cli.output import format_json_time, print_answer
from compatgate.kit.cli.usage import action

_SHOWN_PARTS = 4


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


@action(
    "find changes in the history of metrics",
    """\
--metrics        follow metrics over runs (the default)
--workload W     only metrics of this workload
--gpu SKU        only runs on this GPU
--metric M       only this metric
--limit N = 200  number of recent runs to read
""",
    PLACE,
    FORMAT,
    epilog="""\
Follows each metric over runs, across stacks and drivers, and prints where its level changed, and
which parts changed with it. At least six runs are needed, three on each side. Nodes that differ:
compatgate nodes drift.
exit status: 0 none is worse, 1 a metric became worse by more than its tolerance and stayed so, 2
bad usage, 3 no metric has six runs
""",
)
def run_drift(args: argparse.Namespace) -> int:
    """Print the changes of metrics over finished runs."""
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


_CHANGES = columns(
    ("metric", lambda one: f"{one['step']}/{one['metric']}"),
    *(("gpu", lambda one: one["gpu"] or "none"), "since: at", "run"),
    ("change", lambda one: f"{100 * one['change']:+.1f} %"),
    ("level", lambda one: f"{one['before']:.4g} to {one['after']:.4g} {one['unit']}"),
    ("effect", _name_effect),
    ("changed with it", _name_parts),
)
"""Columns of changes of a metric's level."""
