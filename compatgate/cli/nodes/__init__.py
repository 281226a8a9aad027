"""``compatgate nodes``: nodes as they were seen, and where they are not what is declared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatgate.cli.database import add_format, add_limit
from compatgate.cli.gate import add_place, ask, ask_all, gate_of

if TYPE_CHECKING:
    import argparse

_NONE = "no nodes; they are known once they were reported: compatgate k8s nodes --report"
_STATES = ("blessed", "not-blessed", "unknown")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command and its actions."""
    parser.epilog = (
        "examples:\n"
        "  compatgate k8s nodes --report --cluster prod-eu\n"
        "  compatgate nodes report --cluster prod-eu\n"
        "  compatgate nodes list --target prod-a100 --driver-state not-blessed\n"
        "  compatgate nodes drift"
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listed = actions.add_parser("list", help="list nodes")
    drift = actions.add_parser("drift", help="list nodes that differ from their target")
    for each in (listed, drift):
        each.add_argument("--cluster", metavar="NAME", help="cluster")
        each.add_argument("--target", metavar="NAME", help="target")
        each.add_argument("--gpu", help="GPU, in any spelling")
        each.add_argument(
            "--stale", choices=("yes", "no"), help="only nodes without a report for a day"
        )
    listed.add_argument("--search", metavar="TEXT", help="part of the name, case-insensitive")
    listed.add_argument("--driver", help="driver version")
    listed.add_argument(
        "--driver-state", choices=_STATES, help="driver state: whether an entry allows it"
    )
    listed.add_argument(
        "--disagrees", action="store_true", help="only nodes whose sources disagree"
    )
    drift.add_argument("--what", choices=("driver", "gpu"), help="kind of difference")
    show = actions.add_parser("show", help="show a node with the reports of each source")
    remove = actions.add_parser("remove", help="remove a node that is gone")
    remove.add_argument("--reason", required=True, help="reason, kept in the audit log")
    for each in (show, remove):
        each.add_argument("name", metavar="NAME", help="name of the node")
        each.add_argument(
            "--cluster", metavar="NAME", help="cluster, if several have a node with this name"
        )
    report = actions.add_parser("report", help="report the driver and GPUs of a node")
    report.add_argument(
        "--probe", metavar="FILE", help="output of compatgate probe (default: probe this machine)"
    )
    report.add_argument("--name", help="name of the node (default: host name)")
    report.add_argument(
        "--cluster",
        metavar="NAME",
        default="default",
        help="cluster of the node (default: default)",
    )
    report.add_argument(
        "--every", metavar="DURATION", help="repeat at this interval, for example 10m"
    )
    for each in (listed, drift):
        add_limit(each)
    for each in (listed, drift, show, remove, report):
        add_place(each)
        add_format(each)


def run(args: argparse.Namespace) -> int:
    """Do what was asked.

    Raises:
        NotFound: there is no such node.
        Conflict: several clusters have one.
    """
    actions = {"list": _list, "drift": _drift, "show": _show, "remove": _remove, "report": _report}
    return actions[args.action](args)


def _list(args: argparse.Namespace) -> int:
    from compatgate.cli.nodes.text import print_nodes

    filters: dict[str, Any] = {
        "search": args.search,
        "driver": args.driver,
        "driver_state": args.driver_state,
        "disagrees": True if args.disagrees else None,
    }
    with gate_of(args) as gate:
        from compatgate.client.operations import Operations

        found = ask_all(gate, args.limit, Operations.list_nodes, **_where(args), **filters)
    if not _as_json(args, found):
        print_nodes(found, _NONE)
    return 0


def _drift(args: argparse.Namespace) -> int:
    from compatgate.cli.nodes.text import print_drift

    with gate_of(args) as gate:
        from compatgate.client.operations import Operations

        found = ask_all(gate, args.limit, Operations.list_drift, **_where(args), what=args.what)
    if not _as_json(args, found):
        print_drift(found)
    return 0


def _show(args: argparse.Namespace) -> int:
    from compatgate.cli.nodes.text import print_node

    with gate_of(args) as gate:
        from compatgate.client.operations import Operations

        found = ask(gate, Operations.show_node, args.name, cluster=args.cluster)
    if not _as_json(args, found):
        print_node(found)
    return 0


def _remove(args: argparse.Namespace) -> int:
    with gate_of(args) as gate:
        from compatgate.client.operations import Operations

        remove = Operations.remove_node
        found = ask(gate, remove, args.name, cluster=args.cluster, reason=args.reason)
    if not _as_json(args, found):
        print(f"{found['cluster']}/{found['name']} is forgotten")
    return 0


def _report(args: argparse.Namespace) -> int:
    from compatgate.cli.again import again, interval

    if args.every is None:
        return _report_once(args)
    return again(lambda: _report_once(args), interval(args.every))


def _report_once(args: argparse.Namespace) -> int:
    from compatgate.cli.nodes.own import own_report
    from compatgate.cli.nodes.text import print_node

    body = own_report(args.probe, args.name)
    with gate_of(args) as gate:
        from compatgate.client.operations import Operations

        (found,) = ask(gate, Operations.report_nodes, [body], cluster=args.cluster)["nodes"]
    if not _as_json(args, found):
        print_node(found)
    return 0


def _where(args: argparse.Namespace) -> dict[str, Any]:
    stale = {"yes": True, "no": False, None: None}[args.stale]
    return {"cluster": args.cluster, "target": args.target, "gpu": args.gpu, "stale": stale}


def _as_json(args: argparse.Namespace, found: Any) -> bool:
    from compatgate.cli.database import print_json

    if args.format == "json":
        print_json(found)
    return bool(args.format == "json")
