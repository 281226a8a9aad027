"""``compatgate k8s nodes``: the cluster's nodes, reported, listed, and what to label and taint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatgate.cli.database import add_format
from compatgate.cli.gate import add_place, ask, gate_of
from compatgate.cli.k8s.cluster import add_cluster, add_name, check_name, connected
from compatgate.errors import BadInput

if TYPE_CHECKING:
    import argparse

    from compatgate.client import Client
    from compatgate.gate.cluster.nodes import ClusterNode
    from compatgate.gate.cluster.suggest import Plan

LARGEST = 512 * 1024 * 1024
CAP = "10%"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action."""
    parser.epilog = (
        "examples:\n"
        "  kubectl get nodes -o json | compatgate k8s nodes --file -\n"
        "  compatgate k8s nodes --report --cluster prod-eu --server https://gate.example\n"
        "  compatgate k8s nodes --suggest"
    )
    add_cluster(parser)
    parser.add_argument(
        "--file", metavar="FILE", help="output of kubectl get nodes -o json; - for stdin"
    )
    add_name(parser)
    parser.add_argument("--report", action="store_true", help="send the nodes to the gate")
    parser.add_argument(
        "--suggest",
        action="store_true",
        help="print kubectl commands that label and taint the nodes",
    )
    add_cap(parser)
    add_place(parser)
    add_format(parser)


def add_cap(parser: argparse.ArgumentParser) -> None:
    """How many nodes may be tainted."""
    parser.add_argument(
        "--max-tainted",
        metavar="N|N%",
        default=CAP,
        help="taint at most this share of a target's GPU nodes, else none (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Read nodes, and do with them what was asked.

    Raises:
        BadInput: the file is not what it should be, or an option cannot be.
        CompatgateError: the cluster or the gate refuses.
    """
    from compatgate.cli.database import print_json
    from compatgate.gate.cluster.suggest import parse_cap

    check_name(args)
    cap = parse_cap(args.max_tainted, "--max-tainted")
    if "max_tainted" in vars(args).get("_given", ()) and not args.suggest:
        raise BadInput("goes with --suggest", field="--max-tainted")
    nodes = [node for node in _read(args) if node.has_gpus]
    with gate_of(args) as gate:
        shown = decided(gate, nodes, args.cluster, dry_run=not args.report)
    if args.suggest:
        from compatgate.cli.k8s.suggestions import print_plans

        return print_plans(plans(nodes, shown), cap, args.format)
    if args.format == "json":
        print_json(shown)
    else:
        from compatgate.cli.nodes.text import print_nodes

        print_nodes(shown, "no node of this cluster has an NVIDIA GPU that its labels tell of")
    return 0


def decided(
    gate: Client, nodes: list[ClusterNode], cluster: str, *, dry_run: bool
) -> list[dict[str, Any]]:
    """The nodes as the gate shows them; reported as well, unless it is a dry run."""
    from compatgate.client.operations import Operations
    from compatgate.gate.cluster.nodes import reports

    report, found = Operations.report_nodes, []
    for part in reports(nodes, cluster):
        answer = ask(gate, report, part["nodes"], cluster=part["cluster"], dry_run=dry_run)
        found += answer["nodes"]
    return found


def plans(nodes: list[ClusterNode], shown: list[dict[str, Any]]) -> list[Plan]:
    """What is to be changed of each node, from what the gate makes of it."""
    from compatgate.gate.cluster.suggest import Decided, plan

    by_name = {node["name"]: node for node in shown}
    return [
        plan(
            node,
            Decided(
                by_name[node.name]["driver_state"],
                by_name[node.name]["driver_why"],
                by_name[node.name]["driver"],
                tuple(by_name[node.name]["targets"]),
            ),
        )
        for node in nodes
        if node.name in by_name
    ]


def _read(args: argparse.Namespace) -> list[ClusterNode]:
    from compatgate.gate.cluster.nodes import live_nodes, printed_nodes

    if args.file is None:
        with connected(args) as api:
            return live_nodes(api)
    from compatgate.cli.check.observed import read_bytes

    origin = "standard input" if args.file == "-" else args.file
    return printed_nodes(read_bytes(args.file, "--file", LARGEST), origin)
