"""``compatgate canary read``: what an adapter finds in a tool's output."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from compatgate.cli.canary.library import add_workloads
from compatgate.cli.database import add_format

if TYPE_CHECKING:
    import argparse

    from compatgate.canary.protocol.adapters.tool import Read
    from compatgate.canary.report import Report

_EPILOG = """\
Reads output that a tool has printed, as the engine would, and shows every metric with its unit (the
names that a workload.toml may declare), checks, versions and problems. With --workload, only what
that workload declares.
exit status: 0 whole, 1 there are problems, 2 bad usage
"""
_MOST = 256 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action."""
    parser.epilog = _EPILOG
    parser.add_argument("file", metavar="FILE", help="output of the tool, - for standard input")
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--adapter", metavar="NAME", help="tool of the output, as in workload.toml")
    chosen.add_argument("--workload", metavar="NAME", help="workload of the output")
    add_workloads(parser)
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Read and print.

    Raises:
        NotFound: there is no such adapter or workload.
        BadInput: the file cannot be read.
    """
    import msgspec

    report = _report(args)
    if args.format == "json":
        print(msgspec.json.format(msgspec.json.encode(report), indent=2).decode())
    else:
        _print(report)
    return int(bool(report.problems or report.truncated))


def _report(args: argparse.Namespace) -> Report:
    from compatgate.canary.protocol import read_report
    from compatgate.canary.protocol.adapters import ToolOutput
    from compatgate.canary.workloads import Library

    if args.workload:
        workload = Library.open(args.workloads).workload(args.workload)
        return read_report([_content(args.file)], workload)
    reader = ToolOutput(_tool(args.adapter))
    reader.feed(_content(args.file))
    return reader.report()


def _tool(name: str) -> Read:
    from compatgate.canary.protocol.adapters import TOOLS
    from compatgate.documents.names import did_you_mean
    from compatgate.errors import NotFound

    if found := TOOLS.get(name):
        return found
    hint = did_you_mean(name, TOOLS)
    if name == "jsonl":
        hint = "the line protocol is read by what a workload declares: give --workload"
    raise NotFound(f"there is no adapter {name!r}", field="--adapter", value=name, hint=hint)


def _content(path: str) -> bytes:
    from compatgate.errors import BadInput

    try:
        if path == "-":
            return sys.stdin.buffer.read(_MOST + 1)
        with open(path, "rb") as file:
            return file.read(_MOST + 1)
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}", field="FILE", value=path) from None


def _print(report: Report) -> None:
    from compatgate.cli.database import table
    from compatgate.cli.terminal import printable

    if env := report.env:
        stated = {"driver": env.driver, **env.versions}
        for name, value in stated.items():
            if value:
                print(f"{name:<10} {printable(value)}")
        for device in env.gpus:
            print(f"{'gpu':<10} {printable(device.name)}")
    rows = [
        (m.name, m.unit, str(len(m.values)), " ".join(f"{v:g}" for v in m.values[:4]))
        for m in report.metrics
    ]
    if rows:
        print(printable(table(("METRIC", "UNIT", "VALUES", "FIRST"), rows)))
    for check in report.checks:
        state = "skipped" if check.skipped else "ok" if check.ok else "FAILED"
        print(f"check {check.name}: {state}: {printable(check.message)}")
    if report.own_fault:
        print(f"the tool, not the stack: {printable(report.own_fault)}")
    for problem in report.problems:
        print(f"problem: {printable(problem)}", file=sys.stderr)
