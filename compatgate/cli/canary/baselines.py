"""Run ``compatgate canary baselines``: list, show, approve and refuse baselines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from compatgate.cli.gate.opening import Operations, gate_of, run_row
from compatgate.errors import BadInput, NotFound
from compatgate.gate_client import ask, ask_all
from compatgate.kit.cli.commands import Body, Option, Row, add_rows, find_row
from compatgate.kit.cli.output import format_json_time, print_json
from compatgate.kit.cli.terminal import strip_controls

if TYPE_CHECKING:
    import argparse

    from compatgate.client import Client


def _format(found: Body) -> str:
    return strip_controls("\n".join(_list_lines(found)))


def _list_lines(found: Body) -> Iterator[str]:
    """Yield a version with its distribution, line by line."""
    yield (
        f"{found['id']}: {found['metric']} of {found['workload']} on {found['sku']},"
        f" {found['family']}, version {found['version']}, {found['state']}"
    )
    by = found["decided_by"] or found["proposed_by"]
    yield f"  {format_json_time(found['decided_at'] or found['proposed_at'])} by {by}"
    if found["source"]:
        yield f"  from {found['source']}"
    yield f"  better {found['better']}, tolerance {found['tolerance']:.1%}"
    if found.get("explained"):
        yield f"  explained: {found['explained']}"
    figures = found["distribution"]
    named = " ".join(
        f"{name} {figures[name]:.6g}" for name in ("min", "median", "p95", "p99", "max")
    )
    yield f"  {figures['n']} values of {figures['runs']} runs, in {found['unit']}: {named}"
    if near := found.get("nearest"):
        change = "" if near["change"] is None else f"; this is {near['change']:+.1%}"
        yield (
            f"  no version is approved for this family; the nearest family is {near['family']}"
            f" ({near['id']}): median {near['median']:.6g}{change}, to compare, never to judge by"
        )
    most = max((bar["count"] for bar in figures["bins"]), default=0)
    for bar in figures["bins"]:
        mark = "#" * round(40 * bar["count"] / most) if most else ""
        yield f"  {bar['low']:>12.6g}  {mark}".rstrip()
    for run in found["runs"]:
        yield f"  from {run['run']}: {len(run['values'])} values{_sampled(run)}"
    for run in found["discarded"]:
        yield f"  not from {run['run']}: {run['reason']}"


def _sampled(run: dict[str, Any]) -> str:
    """Describe the origin of a sample: date, GPU, driver and note."""
    sample = run.get("sample")
    if not sample:
        return ""
    on = [f"driver {sample['driver']}"] if sample["driver"] else []
    on += [f"{name} {version}" for name, version in sample["versions"].items()]
    note = f" ({sample['note']})" if sample.get("note") else ""
    return f", a sample of {sample['measured_at'][:10]}: {', '.join(on)}{note}"


_ID = Option("id", metavar="ID", help="version number, as listed")


def _add_run(parser: argparse.ArgumentParser) -> None:
    about = "version number, as listed; or --all-of"
    parser.add_argument("id", type=int, nargs="?", metavar="ID", help=about)
    about = "approve every proposed version with values of this run"
    parser.add_argument("--all-of", metavar="RUN", help=about)


ROWS = (
    Row(
        "list",
        "list_baselines",
        "list versions, newest first",
        (
            Option("workload", help="workload with digest, as listed", metavar="W"),
            Option("sku", help="GPU SKU, or cpu"),
            Option("metric", help="metric", metavar="M"),
            Option("state", help="state (default: any)"),
        ),
        {name: name for name in ("id", "workload", "metric", "sku", "family", "version", "state")}
        | {"runs": "learnt_from", "values": "values"},
        "no baselines",
    ),
    Row(
        "show",
        "show_baseline",
        "show a version with its distribution",
        (_ID,),
        text=_format,
    ),
    Row(
        "approve",
        "approve_baseline",
        "approve a proposed version for future runs",
        (),
        text=_format,
        extend=_add_run,
    ),
    Row(
        "refuse",
        "refuse_baseline",
        "refuse a version, or retire an approved one",
        (_ID,),
        text=_format,
    ),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action."""
    add_rows(parser.add_subparsers(dest="baseline_action", required=True, metavar="ACTION"), ROWS)


def run(args: argparse.Namespace) -> int:
    """Run the chosen action."""
    row = find_row(ROWS, args.baseline_action)
    if row.action != "approve":
        return run_row(args, row)
    if (args.id is None) == (args.all_of is None):
        raise BadInput(
            "approve needs a version or a run",
            field="ID",
            value=args.id,
            hint="name one version, or --all-of RUN",
        )
    if args.all_of is None:
        return run_row(args, row, id=args.id)
    with gate_of(args) as gate:
        return _approve_all(args, gate)


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
    approved = [ask(gate, Operations.approve_baseline, found["id"]) for found in mine]
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
