"""``compatgate target what-if``: what is in use on a target, under another driver, GPU or CUDA."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from compatgate.cli.database import add_format
from compatgate.cli.gate import add_place, ask, gate_of
from compatgate.cli.parser import server_of
from compatgate.core.verdict import exit_code
from compatgate.errors import BadInput

if TYPE_CHECKING:
    import argparse

    from compatgate.discovery.node_labels import Node

_EXAMPLES = """\
examples:
  compatgate target what-if prod-a100 --set driver=580.95.05
  compatgate target what-if prod-a100 --pool a100-80 --set driver=580.95.05 --format json
  kubectl get node gpu-7 -o json | compatgate target what-if --node - --set driver=580.95.05

exit status: 0 nothing in use breaks, 1 something does, 2 bad input, 3 it cannot be said; what the
target's policy only warns of is 0.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action."""
    parser.epilog = _EXAMPLES
    parser.add_argument("name", nargs="?", metavar="NAME", help="target; optional with a node")
    parser.add_argument(
        "--set",
        metavar="NAME=VALUE,...",
        action="append",
        default=[],
        help="change: driver, gpu, os or cpu of the pools, or a component of every stack",
    )
    parser.add_argument("--pool", metavar="NAME", help="change only this pool")
    parser.add_argument(
        "--node",
        metavar="FILE",
        help="use target and pool of this Kubernetes node (output of kubectl get node NAME -o json)"
        ' it ("-": standard input)',
    )
    add_place(parser)
    parser.add_argument("--bundle", metavar="FILE", help="use a bundle")
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Say what would break and what would get better.

    Returns:
        0 nothing breaks, 1 something does, 3 it cannot be said.

    Raises:
        BadInput: an option or the node's labels are wrong.
        NotFound: there is no such target or pool, or none fits the node.
        Unavailable: the server or the database does not answer.
    """
    body = _question(args)
    found = _ask(args, body)
    if args.format == "json":
        from compatgate.cli.database import print_json

        print_json(found)
    else:
        from compatgate.cli.target_what_if_text import render
        from compatgate.cli.terminal import wants_colour, width_of

        print(render(found, width_of(sys.stdout), colour=wants_colour(sys.stdout)))
    return exit_code(found["verdict"], allowed=found["allowed"])


def _question(args: argparse.Namespace) -> dict[str, Any]:
    from compatgate.cli.check.question import read_changes

    changes = read_changes(args.set)
    if not changes:
        raise BadInput("nothing is changed", field="--set", hint="like --set driver=580.95.05")
    body: dict[str, Any] = {"set": changes, "target": args.name, "pool": args.pool}
    if args.node:
        node = _node(args.node)
        body["node"] = {"name": node.name, "labels": node.labels}
        body["target"] = args.name or node.target or None
    elif not args.name:
        raise BadInput("name a target, or give a node with --node", field="NAME")
    return {key: value for key, value in body.items() if value is not None}


def _node(path: str) -> Node:
    from compatgate.cli.check.observed import read_text
    from compatgate.discovery.node_labels import read_nodes

    nodes = read_nodes(read_text(path, "--node"), origin="--node")
    if len(nodes) > 1:
        hint = "ask for one after the other"
        raise BadInput(f"holds {len(nodes)} nodes", field="--node", hint=hint)
    return nodes[0]


def _ask(args: argparse.Namespace, body: dict[str, Any]) -> dict[str, Any]:
    server_of(args)  # refuses several places
    if args.bundle:
        return _of_bundle(args.bundle, body)
    with gate_of(args) as gate:
        from compatgate.client.operations import Operations

        return ask(gate, Operations.what_if, body)


def _of_bundle(path: str, body: dict[str, Any]) -> dict[str, Any]:
    from compatgate.gate.bundle import load_bundle
    from compatgate.gate.whatif import answer
    from compatgate.store import clock

    return answer(body, load_bundle(path).snapshot(), clock.now()).to_json()
