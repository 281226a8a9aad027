"""Run ``compatgate canary baselines``: list, show, approve and refuse baselines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatgate.errors import BadInput, NotFound
from compatgate.kit.cli.options import add_format
from compatgate.kit.cli.output import print_json, print_list
from compatgate.kit.cli.parser import positive_count
from compatgate.kit.cli.terminal import strip_controls
from compatgate.service.gate_client import Operations, add_place, ask, ask_all, gate_of

if TYPE_CHECKING:
    import argparse

    from compatgate.client import Client


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action."""
    actions = parser.add_subparsers(dest="baseline_action", required=True, metavar="ACTION")
    shown = actions.add_parser("list", help="list versions, newest first")
    shown.add_argument("--workload", metavar="W", help="workload with digest, as listed")
    shown.add_argument("--sku", metavar="SKU", help="GPU SKU, or cpu")
    shown.add_argument("--metric", metavar="M", help="metric")
    states = ("proposed", "approved", "replaced", "refused")
    shown.add_argument("--state", choices=states, help="state (default: any)")
    shown.add_argument(
        "--limit", type=positive_count, metavar="N", help="number of versions (default: all)"
    )
    show = actions.add_parser("show", help="show a version with its distribution")
    approve = actions.add_parser("approve", help="approve a proposed version for future runs")
    refuse = actions.add_parser("refuse", help="refuse a version, or retire an approved one")
    for action in (show, refuse):
        action.add_argument("id", type=int, metavar="ID", help="version number, as listed")
    approve.add_argument(
        "id", type=int, nargs="?", metavar="ID", help="version number, as listed; or --all-of"
    )
    approve.add_argument(
        "--all-of", metavar="RUN", help="approve every proposed version with values of this run"
    )
    approve.add_argument(
        "--explained",
        metavar="REASON",
        help="reason why implausible values are correct; kept with the baseline",
    )
    for action in (shown, show, approve, refuse):
        add_place(action)
        add_format(action)


def run(args: argparse.Namespace) -> int:
    """Run the chosen action."""
    if args.baseline_action == "approve" and (args.id is None) == (args.all_of is None):
        raise BadInput(
            "approve needs a version or a run",
            field="ID",
            value=args.id,
            hint="name one version, or --all-of RUN",
        )
    with gate_of(args) as gate:
        if args.baseline_action == "list":
            return _list(args, gate)
        if args.baseline_action == "approve" and args.all_of:
            return _approve_all(args, gate)
        if args.baseline_action == "approve":
            found = ask(gate, Operations.approve_baseline, args.id, explained=args.explained)
        else:
            operation = {
                "show": Operations.show_baseline,
                "refuse": Operations.refuse_baseline,
            }[args.baseline_action]
            found = ask(gate, operation, args.id)
    if args.format == "json":
        print_json(found)
    else:
        _print(found)
    return 0


def _approve_all(args: argparse.Namespace, gate: Client) -> int:
    """Approve the proposed versions that a run is part of; versions that leave it out wait."""
    proposed = ask_all(gate, None, Operations.list_baselines, state="proposed")
    details = [ask(gate, Operations.show_baseline, listed["id"]) for listed in reversed(proposed)]
    mine = [found for found in details if any(_is_of(args.all_of, run) for run in found["runs"])]
    if not mine:
        raise NotFound(
            f"no proposed baseline has values of run {args.all_of}",
            field="--all-of",
            value=args.all_of,
            hint="compatgate canary baselines list --state proposed",
        )
    approved = [
        ask(gate, Operations.approve_baseline, found["id"], explained=args.explained)
        for found in mine
    ]
    if args.format == "json":
        print_json(approved)
        return 0
    for found in approved:
        print(
            f"{found['id']}: {found['metric']} of {found['workload']} on {found['sku']}, approved"
        )
    return 0


def _is_of(run: str, learned: dict[str, Any]) -> bool:
    """Return whether values are those of a run, or of one of its steps."""
    name: str = learned["run"]
    return name == run or name.startswith(f"{run}:")


def _list(args: argparse.Namespace, gate: Client) -> int:

    names = ("workload", "sku", "metric", "state")
    filters = {name: getattr(args, name) for name in names}
    found = ask_all(gate, args.limit, Operations.list_baselines, **filters)
    head = ("id", "workload", "metric", "sku", "family", "version", "state", "runs", "values")
    keys = (*head[:7], "learnt_from", "values")
    rows = (tuple(b[key] for key in keys) for b in found)
    return print_list(found, args.format, head, rows, empty="no baselines")


def _print(found: dict[str, Any]) -> None:
    from compatgate.kit.cli.output import format_json_time

    print(
        f"{found['id']}: {found['metric']} of {found['workload']} on {found['sku']},"
        f" {found['family']}, version {found['version']}, {found['state']}"
    )
    by = found["decided_by"] or found["proposed_by"]
    print(f"  {format_json_time(found['decided_at'] or found['proposed_at'])} by {by}")
    if found["source"]:
        print(f"  from {strip_controls(found['source'])}")
    print(f"  better {found['better']}, tolerance {found['tolerance']:.1%}")
    for name in ("doubt", "explained"):
        if found.get(name):
            print(f"  {name}: {strip_controls(found[name])}")
    figures = found["distribution"]
    named = " ".join(
        f"{name} {figures[name]:.6g}" for name in ("min", "median", "p95", "p99", "max")
    )
    print(f"  {figures['n']} values of {figures['runs']} runs, in {found['unit']}: {named}")
    if near := found.get("nearest"):
        change = "" if near["change"] is None else f"; this is {near['change']:+.1%}"
        print(
            f"  no version is approved for this family; the nearest family is {near['family']}"
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
    """Describe the origin of a sample: date, GPU, driver and note."""
    sample = run.get("sample")
    if not sample:
        return ""
    on = [f"driver {sample['driver']}"] if sample["driver"] else []
    on += [f"{name} {version}" for name, version in sample["versions"].items()]
    note = f" ({sample['note']})" if sample.get("note") else ""
    return strip_controls(f", a sample of {sample['measured_at'][:10]}: {', '.join(on)}{note}")
