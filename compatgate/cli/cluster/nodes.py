"""Run ``compatgate k8s nodes`` and ``reconcile``: report nodes; label and taint them by driver."""

from __future__ import annotations

import argparse
from typing import Any

from compatgate.cli.cluster import CLUSTER, CLUSTER_NAME, check_name, connect_cluster
from compatgate.cli.gate import Client, Operations, gate_of
from compatgate.cli.nodes import print_nodes
from compatgate.gate_client import ask
from compatgate.kit.cli.options import FORMAT, PLACE
from compatgate.kit.cli.output import name_input, print_json, read_bytes
from compatgate.kit.cli.terminal import say, strip_controls
from compatgate.kit.cli.usage import action
from compatgate.kit.kubernetes import ClusterApi
from compatgate.service.nodes.kubernetes.connection import (
    ClusterNode,
    list_nodes,
    make_reports,
    parse_nodes,
)
from compatgate.service.nodes.kubernetes.labels import (
    NodeDecision,
    Plan,
    apply_plans,
    exceeded_limits,
    parse_taint_limit,
    plan_change,
    print_plans,
    print_summary,
)

LARGEST = 512 * 1024 * 1024


@action(
    "read the cluster's nodes; report them",
    CLUSTER,
    "--file FILE  output of kubectl get nodes -o json; - for stdin",
    CLUSTER_NAME,
    "--report  send the nodes to the gate",
    PLACE,
    FORMAT,
    epilog="""\
examples:
  kubectl get nodes -o json | compatgate k8s nodes --file -
  compatgate k8s nodes --report --cluster prod-eu --server https://gate.example
""",
)
def run_nodes(args: argparse.Namespace) -> int:
    """Read nodes, and print or report them."""
    check_name(args)
    if args.file is None:
        with connect_cluster(args) as api:
            nodes = list_nodes(api)
    else:
        data = read_bytes(args.file, "--file", LARGEST)
        nodes = parse_nodes(data, name_input(args.file))
    nodes = [node for node in nodes if node.has_gpus]
    with gate_of(args) as gate:
        shown = decide_nodes(gate, nodes, args.cluster, dry_run=not args.report)
    return print_nodes(args.format, shown, "no node of this cluster has NVIDIA GPU labels")


def decide_nodes(
    gate: Client, nodes: list[ClusterNode], cluster: str, *, dry_run: bool
) -> list[dict[str, Any]]:
    """Return the nodes as the gate shows them; report them first, except in a dry run."""
    report, found = Operations.report_nodes, []
    for part in make_reports(nodes, cluster):
        answer = ask(gate, report, part["nodes"], cluster=part["cluster"], dry_run=dry_run)
        found += answer["nodes"]
    return found


def plan_nodes(nodes: list[ClusterNode], shown: list[dict[str, Any]]) -> list[Plan]:
    """Plan the changes of each node from the gate's answer."""
    by_name = {node["name"]: node for node in shown}
    return [
        plan_change(
            node,
            NodeDecision(
                one["driver_state"], one["driver_why"], one["driver"], tuple(one["targets"])
            ),
        )
        for node in nodes
        if (one := by_name.get(node.name))
    ]


@action(
    "label nodes by driver state, and taint nodes whose driver is not blessed",
    CLUSTER,
    CLUSTER_NAME,
    "--apply  change the nodes",
    "--max-tainted N|N% = 10%  taint at most this share of a target's GPU nodes, else none",
    PLACE,
    FORMAT,
    epilog="""\
Sets the label compatgate.dev/driver=blessed|not-blessed|unknown, and on nodes whose
driver no blessed or deprecated entry of their target admits the taint
compatgate.dev/driver-not-blessed=DRIVER:NoSchedule. Labels and taints of others stay.
Without --apply nothing is changed.

examples:
  compatgate k8s reconcile --cluster prod-eu
  compatgate k8s reconcile --cluster prod-eu --apply --max-tainted 5%
""",
)
def run_reconcile(args: argparse.Namespace) -> int:
    """Apply the planned changes; return 1 if the taint limit is exceeded."""
    check_name(args)
    cap = parse_taint_limit(args.max_tainted, "--max-tainted")
    with connect_cluster(args) as api, gate_of(args) as gate:
        nodes = [node for node in list_nodes(api) if node.has_gpus]
        found = plan_nodes(nodes, decide_nodes(gate, nodes, args.cluster, dry_run=True))
        if not args.apply or exceeded_limits(found, cap):
            return print_plans(found, cap, args.format)
        return _apply(api, found, args.format)


def _apply(api: ClusterApi, found: list[Plan], form: str) -> int:
    """Change the nodes, one after the other; return 3 if one could not be changed."""
    outcomes = []
    for outcome in apply_plans(api, found):
        name, state = outcome.plan.node.name, outcome.plan.decided.state
        outcomes.append(
            {"node": name, "driver_state": state, "done": outcome.done, "why": outcome.why}
        )
        if form == "text":
            why = f": {outcome.why}" if outcome.why else ""
            print(strip_controls(f"{name}: {outcome.done} ({state}){why}"))
    if form == "json":
        print_json(outcomes)
    print_summary(found, ())
    failed = sum(outcome["done"] == "failed" for outcome in outcomes)
    if failed:
        say(f"error: {failed} nodes could not be changed")
    return 3 if failed else 0
