"""Run ``compatgate nodes``: list nodes and their reported state; show drift; report a node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

from compatgate.core.request import DriftKind
from compatgate.errors import BadInput, quote_error
from compatgate.kit.cli.options import add_format, add_limit
from compatgate.kit.cli.output import format_json_time, print_table
from compatgate.kit.cli.terminal import strip_controls
from compatgate.service.gate_client import Operations, add_place, ask, ask_all, gate_of

if TYPE_CHECKING:
    import argparse

_NONE = "no nodes yet; report them with: compatgate k8s nodes --report"
_STATES = ("blessed", "not-blessed", "unknown")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command and its actions."""
    parser.epilog = (
        "examples:\n"
        "  compatgate k8s nodes --report --cluster prod-eu\n"
        "  compatgate nodes report --cluster prod-eu\n"
        "  compatgate nodes import fleet.json\n"
        "  compatgate nodes list --target prod-a100 --driver-state not-blessed\n"
        "  compatgate nodes drift"
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for each in (*_add_lists(actions), *_add_single(actions), *_add_reports(actions)):
        add_place(each)
        add_format(each)


def _add_lists(actions: Any) -> tuple[argparse.ArgumentParser, ...]:
    listed = actions.add_parser("list", help="list nodes")
    drift = actions.add_parser("drift", help="list nodes that differ from their targets")
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
        "--driver-state", choices=_STATES, help="driver state: whether an entry allows the driver"
    )
    listed.add_argument(
        "--disagrees", action="store_true", help="only nodes whose sources disagree"
    )
    drift.add_argument(
        "--what",
        metavar="PROPERTY",
        choices=get_args(DriftKind),
        help="property that differs: driver, gpu, platform, or a part like fabric-manager",
    )
    for each in (listed, drift):
        add_limit(each)
    return listed, drift


def _add_single(actions: Any) -> tuple[argparse.ArgumentParser, ...]:
    show = actions.add_parser("show", help="show a node with the reports of each source")
    remove = actions.add_parser("remove", help="remove a node that no longer exists")
    remove.add_argument("--reason", required=True, help="reason, kept in the audit log")
    for each in (show, remove):
        each.add_argument("name", metavar="NAME", help="name of the node")
        each.add_argument(
            "--cluster", metavar="NAME", help="cluster, if several have a node with this name"
        )
    return show, remove


def _add_reports(actions: Any) -> tuple[argparse.ArgumentParser, ...]:
    report = actions.add_parser("report", help="report driver, GPUs, parts and settings of a node")
    report.add_argument(
        "--probe", metavar="FILE", help="output of compatgate probe (default: probe this machine)"
    )
    report.add_argument(
        "--root",
        metavar="DIR",
        default="/",
        help="root folder of the node, if this runs in a container (default: /)",
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
    imported = actions.add_parser("import", help="report nodes from a file")
    imported.add_argument(
        "file", metavar="FILE", help='JSON file, as the body of POST /nodes ("-": standard input)'
    )
    imported.add_argument(
        "--dry-run", action="store_true", help="print the result without storing it"
    )
    return report, imported


def run(args: argparse.Namespace) -> int:
    """Run the chosen action.

    Raises:
        NotFound: the node does not exist.
        Conflict: several clusters have a node with this name.
    """
    actions = {
        "list": _list_nodes,
        "drift": _list_drift,
        "show": _show_node,
        "remove": _remove_node,
        "report": _report,
        "import": _import,
    }
    return actions[args.action](args)


def _list_nodes(args: argparse.Namespace) -> int:

    filters: dict[str, Any] = {
        "search": args.search,
        "driver": args.driver,
        "driver_state": args.driver_state,
        "disagrees": True if args.disagrees else None,
    }
    with gate_of(args) as gate:
        found = ask_all(gate, args.limit, Operations.list_nodes, **_where(args), **filters)
    if not _as_json(args, found):
        print_nodes(found, _NONE)
    return 0


def _list_drift(args: argparse.Namespace) -> int:

    with gate_of(args) as gate:
        found = ask_all(gate, args.limit, Operations.list_drift, **_where(args), what=args.what)
    if not _as_json(args, found):
        print_drift(found, args.what)
    return 0


def _show_node(args: argparse.Namespace) -> int:

    with gate_of(args) as gate:
        found = ask(gate, Operations.show_node, args.name, cluster=args.cluster)
    if not _as_json(args, found):
        print_node(found)
    return 0


def _remove_node(args: argparse.Namespace) -> int:
    with gate_of(args) as gate:
        remove = Operations.remove_node
        found = ask(gate, remove, args.name, cluster=args.cluster, reason=args.reason)
    if not _as_json(args, found):
        print(f"removed {found['cluster']}/{found['name']}")
    return 0


def _report(args: argparse.Namespace) -> int:
    from compatgate.kit.cli.options import read_interval, repeat

    if args.every is None:
        return _report_once(args)
    return repeat(lambda: _report_once(args), read_interval(args.every))


def _report_once(args: argparse.Namespace) -> int:

    body = own_report(args.probe, args.name, root=args.root)
    with gate_of(args) as gate:
        (found,) = ask(gate, Operations.report_nodes, [body], cluster=args.cluster)["nodes"]
    if not _as_json(args, found):
        print_node(found)
    return 0


def _import(args: argparse.Namespace) -> int:
    """Report the nodes of a file, in as many reports as their number needs."""
    from compatgate.service.nodes.schemas import CLUSTER, MAX_NODES

    document = _read_report(args.file)
    nodes, cluster = document["nodes"], document.get("cluster", CLUSTER)
    found: list[dict[str, Any]] = []
    with gate_of(args) as gate:
        for start in range(0, len(nodes), MAX_NODES):
            part = nodes[start : start + MAX_NODES]
            answer = ask(gate, Operations.report_nodes, part, cluster=cluster, dry_run=args.dry_run)
            found += answer["nodes"]
    if not _as_json(args, found):
        print_nodes(found, _NONE)
    return 0


def _read_report(path: str) -> dict[str, Any]:
    """Read a report of nodes; the gate checks its nodes.

    Raises:
        BadInput: the file cannot be read, or is no report.
    """
    import msgspec

    from compatgate.kit.cli.output import read_text
    from compatgate.strict_json import DECODE_ERRORS

    hint = 'like {"cluster": "prod-eu", "nodes": [{"name": "gpu-17", "probe": {...}}]}'
    try:
        document = msgspec.json.decode(read_text(path, "FILE"))
    except DECODE_ERRORS as error:
        raise BadInput(f"is not JSON: {quote_error(error)}", field=path, hint=hint) from None
    nodes = document.get("nodes") if isinstance(document, dict) else None
    if not isinstance(nodes, list) or not nodes:
        raise BadInput("lists no nodes", field=path, hint=hint)
    if unknown := sorted(set(document) - {"cluster", "nodes"}):
        raise BadInput("unknown key", field=f"{path}: {unknown[0]}", hint=hint)
    return dict(document)


def _where(args: argparse.Namespace) -> dict[str, Any]:
    stale = {"yes": True, "no": False, None: None}[args.stale]
    return {"cluster": args.cluster, "target": args.target, "gpu": args.gpu, "stale": stale}


def _as_json(args: argparse.Namespace, found: Any) -> bool:
    from compatgate.kit.cli.output import print_json

    if args.format == "json":
        print_json(found)
    return bool(args.format == "json")


def own_report(probe: str | None, name: str | None, *, root: str = "/") -> dict[str, Any]:
    """Make a node report from the driver's own report.

    Args:
        probe: a file of ``compatgate probe``, ``-`` for standard input; None: this machine.
        name: of the node; None: this machine's host name, where it is looked at itself.
        root: root folder of this machine, where this process runs in a container.

    Raises:
        BadInput: the file cannot be read, is no probe of a host, or the node has no name.
    """
    if probe is None:
        from compatgate.catalog import load_facts
        from compatgate.discovery.probe import probe_machine

        document: Mapping[str, Any] = probe_machine(load_facts(), root=root).to_json()
        import socket

        name = name or socket.gethostname().lower()
    else:
        from compatgate.discovery.probe import read_probe
        from compatgate.kit.cli.output import read_text

        document = read_probe(read_text(probe, "--probe"), origin=probe)
    if not name:
        hint = "--name is required: a probe does not name its node"
        raise BadInput("name the node that the probe describes", field="--name", hint=hint)
    return {"name": name, "probe": driver_report(document)}


def driver_report(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the driver, GPUs, platform and parts of the node of a probe document.

    Raises:
        BadInput: it is not about one host.
    """
    host = document.get("host")
    gpus = host.get("gpus") if isinstance(host, dict) else None
    if not isinstance(host, dict) or not isinstance(gpus, list):
        raise BadInput("does not describe a host", field="--probe", hint="create it with probe -o")
    found: dict[str, Any] = {"gpus": []}
    if host.get("driver"):
        found["driver"] = host["driver"]
    for gpu in gpus:
        if not isinstance(gpu, dict) or "nodes" in gpu:
            hint = "report nodes by their labels: compatgate k8s nodes --report"
            raise BadInput("describes several nodes", field="--probe", hint=hint)
        found["gpus"].append({"gpu": gpu.get("product"), "count": gpu.get("devices", 1)})
    return found | {name: host[name] for name in ("platform", "node") if host.get(name)}


_NODE_COLUMNS = ("cluster", "node", "driver", "gpus", "targets", "driver is", "seen", "remarks")
_DRIFT_COLUMNS = ("cluster", "node", "target", "what", "has", "declared", "since", "seen")


def print_nodes(nodes: Sequence[dict[str, Any]], empty: str) -> None:
    """Print a line for each node."""
    rows = [
        (
            node["cluster"],
            node["name"],
            node["driver"],
            format_gpus(node),
            ", ".join(node["targets"]),
            node["driver_state"],
            format_json_time(node["seen_at"]),
            strip_controls("; ".join(_remarks(node))),
        )
        for node in nodes
    ]
    print_table(_NODE_COLUMNS, rows, empty=empty)


def print_drift(nodes: Sequence[dict[str, Any]], what: str | None = None) -> None:
    """Print a line for each difference.

    Args:
        nodes: those that drifted.
        what: the property whose differences are printed; None: all.
    """
    rows = [
        (
            node["cluster"],
            node["name"],
            one["target"],
            one["what"],
            strip_controls(one["have"] or "not known"),
            ", ".join(one["declared"]),
            format_json_time(node["since"]),
            f"{format_json_time(node['seen_at'])}{' (stale)' if node['stale'] else ''}",
        )
        for node in nodes
        for one in node["differences"]
        if what in (None, one["what"])
    ]
    print_table(
        _DRIFT_COLUMNS,
        rows,
        empty="no reported node differs from its target (nodes list shows all)",
    )


def print_node(node: dict[str, Any]) -> None:
    """Print every detail of a node."""
    print(f"{node['cluster']}/{node['name']}")
    facts = {
        "driver": f"{node['driver'] or 'not known'}, {node['driver_state']}: {node['driver_why']}",
        "GPUs": format_gpus(node) or "none known",
        **({"platform": node["platform"]} if node["platform"] else {}),
        **({"node": _format_parts(node["node"])} if node["node"] else {}),
        "targets": ", ".join(node["targets"]) or "none",
        "since": format_json_time(node["since"]),
        "seen": f"{format_json_time(node['seen_at'])}{', stale' if node['stale'] else ''}"
        f", by {node['reported_by']}",
    }
    for name, value in facts.items():
        print(f"  {name:<8} {strip_controls(str(value))}")
    for title, texts in (
        ("drift", [one["message"] for one in node["drift"]]),
        ("sources disagree", node["disagreements"]),
        ("notes", node["notes"]),
        ("witnesses", list(map(_source_text, node["witnesses"]))),
    ):
        if texts:
            print(title)
            for text in texts:
                print(f"  - {strip_controls(text)}")


def format_gpus(node: dict[str, Any]) -> str:
    """Format GPUs as ``8 x A100-SXM4-80GB``."""
    return strip_controls(", ".join(f"{kind['count']} x {kind['gpu']}" for kind in node["gpus"]))


def _format_parts(parts: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in parts.items())


def _remarks(node: dict[str, Any]) -> Iterator[str]:
    if node["stale"]:
        yield "stale"
    yield from (one["message"] for one in node["drift"])
    yield from node["disagreements"]
    yield from node["notes"]


def _source_text(witness: dict[str, Any]) -> str:
    said = [f"driver {witness['driver']}"] if witness.get("driver") else []
    said += [format_gpus(witness)] if witness.get("gpus") else []
    said += [f"platform {witness['platform']}"] if witness.get("platform") else []
    said += [_format_parts(witness["node"])] if witness.get("node") else []
    said += [f"{name}: {count}" for name, count in witness.get("resources", {}).items()]
    what = ", ".join(said) or "nothing"
    return f"{witness['witness']}, {format_json_time(witness['seen_at'])}: {what}"
