"""``compatgate canary baselines``: what metrics are expected to be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatgate.cli.canary.library import add_workloads
from compatgate.cli.database import add_format
from compatgate.cli.gate import add_place, ask, ask_all, gate_of
from compatgate.cli.parser import some

if TYPE_CHECKING:
    import argparse

    from compatgate.client import Client

_IMPORT = """\
Every version that is proposed waits for approval (baselines approve); runs are judged by it only
then. Samples start what has no version at all. Where a file is malformed nothing is proposed.
exit status: 0 done (also where nothing was new), 1 something was refused, 2 bad input
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action."""
    actions = parser.add_subparsers(dest="baseline_action", required=True, metavar="ACTION")
    shown = actions.add_parser("list", help="list versions, newest first")
    shown.add_argument("--workload", metavar="W", help="workload with digest, as listed")
    shown.add_argument("--sku", metavar="SKU", help="GPU SKU, or cpu")
    shown.add_argument("--metric", metavar="M", help="metric")
    states = ("proposed", "approved", "replaced", "refused")
    shown.add_argument("--state", choices=states, help="state (default: any)")
    shown.add_argument("--limit", type=some, metavar="N", help="number of versions (default: all)")
    show = actions.add_parser("show", help="show a version with its distribution")
    approve = actions.add_parser("approve", help="approve a proposed version for future runs")
    refuse = actions.add_parser("refuse", help="refuse a version, or retire an approved one")
    for action in (show, approve, refuse):
        action.add_argument("id", type=int, metavar="ID", help="version number, as listed")
    export = actions.add_parser("export", help="export the approved baselines to a file")
    export.add_argument("--workload", metavar="W", help="workload name, with or without digest")
    export.add_argument("--sku", metavar="SKU", help="GPU SKU, or cpu")
    export.add_argument(
        "-o", "--output", metavar="FILE", default="-", help="output file (default: standard output)"
    )
    add_place(export)
    take = actions.add_parser(
        "import",
        help="propose baselines from samples or from another gate's export",
        epilog=_IMPORT,
    )
    take.add_argument(
        "files",
        nargs="*",
        metavar="FILE|DIR",
        help="files or workload folders (default: the samples of every workload)",
    )
    add_workloads(take)
    for action in (shown, show, approve, refuse, take):
        add_place(action)
        add_format(action)


def run(args: argparse.Namespace) -> int:
    """Do what was asked.

    Raises:
        NotFound: there is no such baseline.
        Conflict: it is not proposed any more; or, to be refused, neither proposed nor approved.
    """
    from compatgate.cli.database import print_json

    if args.baseline_action in ("export", "import"):
        from compatgate.cli.canary import baseline_files

        return baseline_files.ACTIONS[args.baseline_action](args)
    with gate_of(args) as gate:
        if args.baseline_action == "list":
            return _list(args, gate)
        from compatgate.client.operations import Operations

        operation = {
            "show": Operations.show_baseline,
            "approve": Operations.approve_baseline,
            "refuse": Operations.refuse_baseline,
        }[args.baseline_action]
        found = ask(gate, operation, args.id)
    if args.format == "json":
        print_json(found)
    else:
        _print(found)
    return 0


def _list(args: argparse.Namespace, gate: Client) -> int:
    from compatgate.cli.database import print_json, print_table
    from compatgate.client.operations import Operations

    names = ("workload", "sku", "metric", "state")
    filters = {name: getattr(args, name) for name in names}
    found = ask_all(gate, args.limit, Operations.list_baselines, **filters)
    if args.format == "json":
        print_json(found)
        return 0
    head = ("id", "workload", "metric", "sku", "family", "version", "state", "runs", "values")
    keys = (*head[:7], "learnt_from", "values")
    print_table(head, [tuple(b[key] for key in keys) for b in found], empty="no baselines")
    return 0


def _print(found: dict[str, Any]) -> None:
    from compatgate.cli.database import second
    from compatgate.cli.terminal import printable

    print(
        f"{found['id']}: {found['metric']} of {found['workload']} on {found['sku']},"
        f" {found['family']}, version {found['version']}, {found['state']}"
    )
    by = found["decided_by"] or found["proposed_by"]
    print(f"  {second(found['decided_at'] or found['proposed_at'])} by {by}")
    if found["source"]:
        print(f"  from {printable(found['source'])}")
    print(f"  better {found['better']}, tolerance {found['tolerance']:.1%}")
    figures = found["distribution"]
    named = " ".join(
        f"{name} {figures[name]:.6g}" for name in ("min", "median", "p95", "p99", "max")
    )
    print(f"  {figures['n']} values of {figures['runs']} runs, in {found['unit']}: {named}")
    if near := found.get("nearest"):
        change = "" if near["change"] is None else f"; this is {near['change']:+.1%}"
        print(
            f"  none is approved for this family; the nearest is {near['family']}"
            f" ({near['id']}): median {near['median']:.6g}{change}, to compare, never to judge by"
        )
    most = max((bar["count"] for bar in figures["bins"]), default=0)
    for bar in figures["bins"]:
        mark = "#" * round(40 * bar["count"] / most) if most else ""
        print(f"  {bar['low']:>12.6g}  {mark}".rstrip())
    for run in found["runs"]:
        print(f"  from {run['run']}: {len(run['values'])} values{_sampled(run)}")
    for run in found["discarded"]:
        print(f"  not from {run['run']}: {run['reason']}")


def _sampled(run: dict[str, Any]) -> str:
    """Of a run that came as a sample: when, on what."""
    from compatgate.cli.terminal import printable

    sample = run.get("sample")
    if not sample:
        return ""
    on = [f"driver {sample['driver']}"] if sample["driver"] else []
    on += [f"{name} {version}" for name, version in sample["versions"].items()]
    note = f" ({sample['note']})" if sample.get("note") else ""
    return printable(f", a sample of {sample['measured_at'][:10]}: {', '.join(on)}{note}")
