"""Run ``compatgate canary hosts`` and ``drift``: list staging hosts and compare their stacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatgate.kit.cli.options import add_format
from compatgate.kit.cli.parser import positive_count
from compatgate.service.gate_client import add_place, ask, ask_all, gate_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from compatgate.canary.hosts import ComponentDrift, HostStack
    from compatgate.client import Client


def add_hosts_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action."""
    parser.add_argument("--gpu", metavar="SKU", help="GPU")
    add_place(parser)
    add_format(parser)


def run_hosts(args: argparse.Namespace) -> int:
    """Print the staging hosts that workers have registered."""
    from compatgate.kit.cli.output import print_json, print_table

    with gate_of(args) as gate:
        from compatgate.client.operations import Operations

        found = ask_all(gate, None, Operations.list_hosts, gpu=args.gpu)
    if args.format == "json":
        print_json(found)
        return 0
    head = ("host", "executor", "gpu", "driver", "busy", "worker", "last seen", "quiet")
    empty = "no hosts; a worker registers its hosts: compatgate worker --hosts FILE"
    print_table(head, [_row(host) for host in found], empty=empty)
    return 0


def _row(host: dict[str, Any]) -> tuple[object, ...]:
    from compatgate.kit.cli.output import format_json_time

    quiet = "; ".join(
        f"{','.join(q['days']) or 'daily'} {q['start']}-{q['end']} {q['timezone']}"
        for q in host["quiet"]
    )
    busy = f"{host['busy']} of {host['slots']}"
    seen = format_json_time(host["seen_at"])
    return (
        host["name"], host["executor"], host["gpu"], host["driver"], busy, host["worker"], seen,
        quiet,
    )  # fmt: skip


_EPILOG = """\
Compares the measured components of the newest run of each host. Prints, for each component, the
value that most hosts have and the hosts that differ.
exit status: 0 all equal, 1 some differ, 2 bad usage, 3 fewer than two hosts with measurements
"""


def add_drift_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action."""
    parser.epilog = _EPILOG
    parser.add_argument(
        "runs", nargs="*", metavar="RUN", help="runs to compare (default: the newest of each host)"
    )
    parser.add_argument("--suite", metavar="S", help="only runs of this suite")
    parser.add_argument("--target", metavar="T", help="only runs for this target")
    parser.add_argument(
        "--limit",
        type=positive_count,
        default=200,
        metavar="N",
        help="number of recent runs to read (default: 200)",
    )
    add_place(parser)
    add_format(parser)


def run_drift(args: argparse.Namespace) -> int:
    """Compare the stacks of hosts, and print the differences.

    Raises:
        NotFound: a given run does not exist.
    """
    from compatgate.canary.hosts import compare_hosts

    with gate_of(args) as gate:
        stacks = _stacks(gate, args)
    found = compare_hosts(stacks)
    if args.format == "json":
        _print_json(stacks, found)
    else:
        _print(stacks, found)
    if len(stacks) < 2:
        return 3
    return int(any(line.differ for line in found))


def _stacks(gate: Client, args: argparse.Namespace) -> list[HostStack]:
    """Return the newest measured stack of each host."""
    from compatgate.canary.hosts import host_stack

    found: dict[str, HostStack] = {}
    for body in _runs(gate, args, found):
        host = body["on_host"] or body["host"]
        envs = list(_envs(body))
        if host and envs and host not in found:
            found[host] = host_stack(host, envs, body["id"])
    return [found[host] for host in sorted(found)]


def _runs(
    gate: Client, args: argparse.Namespace, done: dict[str, HostStack]
) -> Iterator[dict[str, Any]]:
    from compatgate.client.operations import Operations

    if args.runs:
        yield from (ask(gate, Operations.show_run, run) for run in args.runs)
        return
    filters: dict[str, Any] = {"state": "ended", "suite": args.suite, "target": args.target}
    for row in ask_all(gate, args.limit, Operations.list_runs, **filters):
        if row.get("source") is None and (row["on_host"] or row["host"]) not in done:
            yield ask(gate, Operations.show_run, row["id"])


def _envs(body: dict[str, Any]) -> Iterator[Any]:
    import msgspec

    from compatgate.canary.run import Report

    for step in body["steps"]:
        report = step["report"] and msgspec.convert(step["report"], Report)
        if report and report.env:
            yield report.env


def _print_json(stacks: Sequence[HostStack], found: Sequence[ComponentDrift]) -> None:
    import msgspec

    from compatgate.kit.cli.output import print_json

    print_json(
        {
            "hosts": [{"host": stack.host, "run": stack.run} for stack in stacks],
            "components": msgspec.to_builtins(list(found)),
        }
    )


def _print(stacks: Sequence[HostStack], found: Sequence[ComponentDrift]) -> None:
    import sys

    from compatgate.kit.cli.output import format_table
    from compatgate.kit.cli.terminal import strip_controls

    if len(stacks) < 2:
        print(f"hosts with measurements: {len(stacks)}; two are needed", file=sys.stderr)
    rows = [
        (
            line.component,
            strip_controls(line.majority or "(no majority)"),
            f"{len(line.agree)}/{len(stacks) - len(line.silent)}",
            strip_controls(_differences(line)),
        )
        for line in found
    ]
    print(format_table(("COMPONENT", "MAJORITY", "HOSTS", "DIFFERENT"), rows))


def _differences(line: ComponentDrift) -> str:
    said = [f"{host}: {value}" for host, value in line.differ.items()]
    if line.silent:
        said.append(f"not measured on {', '.join(line.silent)}")
    return "; ".join(said)
