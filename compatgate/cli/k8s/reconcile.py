"""``compatgate k8s reconcile``: nodes labelled and tainted by whether their driver is blessed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from compatgate.cli.database import add_format
from compatgate.cli.gate import add_place, gate_of
from compatgate.cli.k8s.cluster import add_cluster, add_name, check_name, connected
from compatgate.cli.k8s.nodes import add_cap

if TYPE_CHECKING:
    import argparse

    from compatgate.gate.cluster.connect import Api
    from compatgate.gate.cluster.suggest import Plan


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action."""
    parser.epilog = (
        "Sets the label compatgate.dev/driver=blessed|not-blessed|unknown, and on nodes whose\n"
        "driver no blessed or deprecated entry of their target admits the taint\n"
        "compatgate.dev/driver-not-blessed=DRIVER:NoSchedule. What others have set stays.\n"
        "Without --apply nothing is changed.\n\n"
        "examples:\n"
        "  compatgate k8s reconcile --cluster prod-eu\n"
        "  compatgate k8s reconcile --cluster prod-eu --apply --max-tainted 5%"
    )
    add_cluster(parser)
    add_name(parser)
    parser.add_argument("--apply", action="store_true", help="change the nodes")
    add_cap(parser)
    add_place(parser)
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Change what is to be changed; 1 where more nodes would be tainted than may be.

    Raises:
        CompatgateError: the cluster or the gate refuses.
    """
    from compatgate.cli.k8s.nodes import decided, plans
    from compatgate.cli.k8s.suggestions import print_plans
    from compatgate.gate.cluster.nodes import live_nodes
    from compatgate.gate.cluster.suggest import parse_cap, too_many

    check_name(args)
    cap = parse_cap(args.max_tainted, "--max-tainted")
    with connected(args) as api:
        nodes = [node for node in live_nodes(api) if node.has_gpus]
        with gate_of(args) as gate:
            found = plans(nodes, decided(gate, nodes, args.cluster, dry_run=True))
        if not args.apply or too_many(found, cap):
            return print_plans(found, cap, args.format)
        return _apply(api, found, args.format)


def _apply(api: Api, found: list[Plan], form: str) -> int:
    from compatgate.cli.database import print_json
    from compatgate.cli.k8s.suggestions import tell
    from compatgate.cli.terminal import printable
    from compatgate.gate.cluster.apply import apply

    outcomes = []
    for outcome in apply(api, found):
        outcomes.append(outcome)
        name, state = outcome.plan.node.name, outcome.plan.decided.state
        if form == "text":
            said = f": {outcome.why}" if outcome.why else ""
            print(printable(f"{name}: {outcome.done} ({state}){said}"))
    if form == "json":
        print_json([
            {"node": o.plan.node.name, "driver_state": o.plan.decided.state, "done": o.done,
             "why": o.why}
            for o in outcomes
        ])  # fmt: skip
    tell(found, ())
    failed = sum(outcome.done == "failed" for outcome in outcomes)
    if failed:
        print(f"error: {failed} nodes could not be changed", file=sys.stderr)
    return 3 if failed else 0
