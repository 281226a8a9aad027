"""``compatgate canary workloads``: which there are, and what one measures and checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatgate.cli.canary.library import add_workloads
from compatgate.cli.database import add_format, table

if TYPE_CHECKING:
    import argparse

    from compatgate.canary.workload import Workload


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="workload to show in full")
    add_workloads(parser)
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """List, or show one.

    Raises:
        NotFound: there is no such workload.
        ManyProblems: a file is wrong.
    """
    import msgspec

    from compatgate.canary.workloads import Library

    library = Library.open(args.workloads)
    chosen = [library.workload(args.name)] if args.name else list(library.workloads.values())
    if args.format == "json":
        bodies = [to_json(workload) for workload in chosen]
        body: Any = bodies[0] if args.name else {"workloads": bodies}
        print(msgspec.json.format(msgspec.json.encode(body), indent=2).decode())
    elif args.name:
        print(_page(chosen[0]))
    else:
        rows = [(w.name, str(w.gpus), _time(w.timeout_s), w.description) for w in chosen]
        print(table(("NAME", "GPUS", "TIMEOUT", "DESCRIPTION"), rows))
    return 0


def to_json(workload: Workload) -> dict[str, Any]:
    """The workload as plain data."""
    import msgspec

    from compatgate.canary.samples.folder import kept

    fields = msgspec.structs.asdict(workload)
    folder = fields.pop("folder")
    samples = [msgspec.to_builtins(sample) for sample in kept(workload)]
    return {**fields, "folder": str(folder) if folder else None, "samples": samples}


def _page(workload: Workload) -> str:
    lines = [f"{workload.name}: {workload.description}", ""]
    lines += [f"  catches   {phrase}" for phrase in workload.catches]
    lines.append(f"  command   {' '.join(workload.command)}")
    lines.append(f"  gpus      {workload.gpus}")
    if workload.nodes > 1:
        lines.append(f"  nodes     {workload.nodes}, on a slurm or kubernetes host")
    lines.append(f"  timeout   {_time(workload.timeout_s)}")
    lines.append(f"  memory    {workload.limits.memory >> 20} MiB")
    lines.append(f"  digest    {workload.digest}")
    lines.append(f"  folder    {workload.folder}")
    for name, spec in workload.metrics.items():
        better = "any change counts" if spec.better == "either" else f"{spec.better} is better"
        text = f"{spec.unit}, {better}, tolerance {spec.tolerance:.0%}"
        peak = f", shown as a share of the {spec.peak} peak" if spec.peak else ""
        lines.append(f"  metric    {name}: {text}, {spec.repetitions} values or more{peak}")
    lines += [f"  check     {name}: {says}" for name, says in workload.checks.items()]
    lines += [f"  sample    {line}" for line in _samples(workload)] or ["  sample    none yet"]
    return "\n".join(lines)


def _samples(workload: Workload) -> list[str]:
    from compatgate.canary.samples.folder import kept
    from compatgate.cli.terminal import printable

    lines = []
    for one in kept(workload):
        driver = f"driver {one.driver}" if one.driver else "no driver"
        marks = [] if one.current else ["of another content of the workload"]
        marks += ["for development"] if one.development else []
        also = f" ({', '.join(marks)})" if marks else ""
        lines.append(printable(f"{one.sku}, {driver}, {one.family}, {one.measured_at[:10]}{also}"))
    return lines


def _time(seconds: int) -> str:
    return f"{seconds // 60}m" if seconds % 60 == 0 else f"{seconds}s"
