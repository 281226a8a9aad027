"""Run ``compatgate k8s nodes``: read the nodes of a cluster, and report them."""

from __future__ import annotations

import argparse
from typing import Any

from compatgate.cli.cluster import CLUSTER, CLUSTER_NAME, check_name, connect_cluster
from compatgate.cli.gate import Client, Operations, gate_of
from compatgate.cli.nodes import print_nodes
from compatgate.gate_client import ask
from compatgate.kit.cli.options import FORMAT, PLACE
from compatgate.kit.cli.output import name_input, read_bytes
from compatgate.kit.cli.usage import action
from compatgate.service.nodes.kubernetes.connection import (
    ClusterNode,
    list_nodes,
    make_reports,
    parse_nodes,
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
