"""``compatgate canary baselines export`` and ``import``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from compatgate.cli.database import print_json
from compatgate.cli.gate import ask, gate_of
from compatgate.cli.output import write_output
from compatgate.cli.terminal import printable

if TYPE_CHECKING:
    import argparse

    from compatgate.documents.sources import Source


def export(args: argparse.Namespace) -> int:
    """Write what runs are judged against, one a line."""
    with gate_of(args) as gate:
        lines = gate.export_baselines(workload=args.workload, sku=args.sku)
    write_output(args.output, "".join(f"{json.dumps(line)}\n" for line in lines).encode())
    print(f"{len(lines) - 1} baselines", file=sys.stderr)
    return 0


def take(args: argparse.Namespace) -> int:
    """Propose what files hold, or the samples beside every workload.

    Raises:
        BadInput: a file that cannot be read.
        ManyProblems: every mistake in every file; nothing was proposed.
    """
    sources = _sources(args)
    found: dict[str, Any] = {"proposed": [], "unchanged": [], "refused": []}
    if sources:
        with gate_of(args) as gate:
            from compatgate.client.operations import Operations

            files = [{"name": source.file, "text": source.text} for source in sources]
            found = ask(gate, Operations.import_baselines, files)
    if args.format == "json":
        print_json(found)
    else:
        _print(found, sources)
    return int(bool(found["refused"]))


ACTIONS: dict[str, Callable[[argparse.Namespace], int]] = {"export": export, "import": take}


def _sources(args: argparse.Namespace) -> Sequence[Source]:
    from compatgate.canary.samples.folder import below, files

    if args.files:
        return below(args.files)
    from compatgate.canary.workloads import Library

    folders = [w.folder for w in Library.open(args.workloads).workloads.values() if w.folder]
    return below([str(path) for folder in folders for path in files(folder)])


def _print(found: dict[str, Any], sources: Sequence[Source]) -> None:
    for row in found["proposed"]:
        print(
            f"proposed {row['id']}: {row['metric']} of {row['workload']} on {row['sku']},"
            f" {row['family']}, version {row['version']}, {row['learnt_from']} runs"
        )
    for left in found["unchanged"]:
        print(f"unchanged: {printable(left['what'])}: {printable(left['reason'])}")
    for left in found["refused"]:
        print(f"refused: {printable(left['what'])}: {printable(left['reason'])}", file=sys.stderr)
    if not sources:
        print("no workload here has a sample yet (docs/canaries.md, Samples)")
    elif found["proposed"]:
        print("look at each with: canary baselines show ID; approve it with: approve ID")
