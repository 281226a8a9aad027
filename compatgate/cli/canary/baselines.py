"""``compatgate canary baselines``: what metrics are expected to be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatgate.cli.canary.access import accessed
from compatgate.cli.service import add_place

if TYPE_CHECKING:
    import argparse

    from compatgate.cli.canary.access import Access


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action."""
    actions = parser.add_subparsers(dest="baseline_action", required=True, metavar="ACTION")
    shown = actions.add_parser("list", help="list versions, newest first")
    shown.add_argument("--workload", metavar="W", help="with its digest, as listed")
    shown.add_argument("--sku", metavar="SKU")
    shown.add_argument("--metric", metavar="M")
    shown.add_argument("--state", choices=("proposed", "approved", "replaced"))
    shown.add_argument("--limit", type=int, metavar="N", help="at most N (everything)")
    show = actions.add_parser("show", help="show a version with its distribution")
    approve = actions.add_parser("approve", help="judge runs by a proposed version from now on")
    for action in (show, approve):
        action.add_argument("id", type=int, metavar="ID")
    for action in (shown, show, approve):
        add_place(action)
        action.add_argument("--format", choices=("text", "json"), default="text")


def run(args: argparse.Namespace) -> int:
    """Do what was asked.

    Raises:
        NotFound: there is no such baseline.
        Conflict: it is not proposed any more.
    """
    from compatgate.cli.database import print_json

    with accessed(args) as gate:
        if args.baseline_action == "list":
            return _list(args, gate)
        if args.baseline_action == "show":
            found = gate.show("baselines", str(args.id))
        else:
            found = gate.act("baselines", str(args.id), "approve")
    if args.format == "json":
        print_json(found)
    else:
        _print(found)
    return 0


def _list(args: argparse.Namespace, gate: Access) -> int:
    from compatgate.cli.database import print_json, print_table

    names = ("workload", "sku", "metric", "state")
    found = gate.list("baselines", args.limit, **{name: getattr(args, name) for name in names})
    if args.format == "json":
        print_json(found)
        return 0
    head = ("id", "workload", "metric", "sku", "family", "version", "state", "runs", "values")
    keys = (*head[:7], "learnt_from", "values")
    print_table(head, [tuple(b[key] for key in keys) for b in found], empty="no baselines")
    return 0


def _print(found: dict[str, Any]) -> None:
    from compatgate.cli.canary.words import second

    print(
        f"{found['id']}: {found['metric']} of {found['workload']} on {found['sku']},"
        f" {found['family']}, version {found['version']}, {found['state']}"
    )
    by = found["decided_by"] or found["proposed_by"]
    print(f"  {second(found['decided_at'] or found['proposed_at'])} by {by}")
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
        print(f"  from {run['run']}: {len(run['values'])} values")
    for run in found["discarded"]:
        print(f"  not from {run['run']}: {run['reason']}")
