"""``compatgate canary hosts``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatgate.cli.gate import add_place, ask_all, gate_of

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action."""
    parser.add_argument("--gpu", metavar="SKU", help="GPU")
    add_place(parser)
    parser.add_argument(
        "--format", choices=("text", "json"), default="text", help="output format (default: text)"
    )


def run(args: argparse.Namespace) -> int:
    """Print the staging hosts that workers have registered."""
    from compatgate.cli.database import print_json, print_table

    with gate_of(args) as gate:
        from compatgate.client.operations import Operations

        found = ask_all(gate, None, Operations.list_hosts, gpu=args.gpu)
    if args.format == "json":
        print_json(found)
        return 0
    head = ("host", "executor", "gpu", "driver", "busy", "worker", "last seen", "quiet")
    empty = "no hosts; a worker registers those that it serves: compatgate worker --hosts FILE"
    print_table(head, [_row(host) for host in found], empty=empty)
    return 0


def _row(host: dict[str, Any]) -> tuple[object, ...]:
    from compatgate.cli.database import second

    quiet = "; ".join(
        f"{','.join(q['days']) or 'daily'} {q['start']}-{q['end']} {q['timezone']}"
        for q in host["quiet"]
    )
    busy = f"{host['busy']} of {host['slots']}"
    seen = second(host["seen_at"])
    return (
        host["name"], host["executor"], host["gpu"], host["driver"], busy, host["worker"], seen,
        quiet,
    )  # fmt: skip
