"""Run ``compatgate k8s nodes``: read the nodes of a cluster, and report them."""

from __future__ import annotations

import argparse

from compatgate.cli.cluster import CLUSTER, CLUSTER_NAME, check_name, connect_cluster
from compatgate.cli.commands import Body
from compatgate.cli.gate import Operations, gate_of
from compatgate.cli.nodes import print_nodes
from compatgate.gate_client import ask
from compatgate.kit.cli.options import FORMAT, PLACE
from compatgate.kit.cli.output import name_input, read_bytes
from compatgate.kit.cli.usage import action
from compatgate.service.nodes.kubernetes.connection import list_nodes, make_reports, parse_nodes

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
    shown: list[Body] = []
    report, dry_run = Operations.report_nodes, not args.report
    with gate_of(args) as gate:
        for part in make_reports([node for node in nodes if node.has_gpus], args.cluster):
            answer = ask(gate, report, part["nodes"], cluster=part["cluster"], dry_run=dry_run)
            shown += answer["nodes"]
    return print_nodes(args.format, shown, "no node of this cluster has NVIDIA GPU labels")
