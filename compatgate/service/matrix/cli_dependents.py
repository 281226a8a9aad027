"""Show what depends on an entry: ``matrix dependents``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatgate.kit.cli.options import add_format
from compatgate.kit.cli.output import format_json_time, print_json, print_table
from compatgate.service.gate_client import Body, Operations, ask

if TYPE_CHECKING:
    import argparse

    from compatgate.client import Client

_LOST = {True: "lost", False: "kept", None: "not known"}


def dependents_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``matrix dependents``."""
    parser.add_argument("name", metavar="ENTRY", help="name of the entry")
    add_format(parser)


def show_dependents(args: argparse.Namespace, gate: Client) -> int:
    """Run ``matrix dependents``."""
    found = ask(gate, Operations.list_dependents, args.name)
    if args.format == "json":
        print_json(found)
        return 0
    print(
        f"{found['entry']} ({found['status']}): {len(found['targets'])} targets, "
        f"{found['decisions']} decisions about {len(found['stacks'])} stacks since "
        f"{found['since'][:10]}, {found['node_count']} nodes; without it {found['lost']} stacks "
        "are not allowed"
    )
    print()
    _print_targets(found)
    if found["stacks"]:
        print()
        _print_stacks(found)
    for text in (*found["left_out"], *(f"replaces {name}" for name in found["replaces"])):
        print(f"note: {text}")
    return 0


def _print_targets(found: Body) -> None:
    rows = [
        (
            one["target"],
            one["owner"],
            one["mode"],
            "yes" if one["stops"] else "no",
            ", ".join(one["pools"]),
            one["declared_nodes"],
            one["reported_nodes"],
        )
        for one in found["targets"]
    ]
    head = ("target", "owner", "mode", "requires it", "pools", "declared nodes", "reported nodes")
    print_table(head, rows, empty="no targets")


def _print_stacks(found: Body) -> None:
    rows = [
        (
            one["target"],
            one["image"] or ", ".join(f"{n} {v}" for n, v in one["stack"].items()),
            one["decisions"],
            format_json_time(one["last"]),
            _LOST[one["lost"]],
        )
        for one in found["stacks"]
    ]
    head = ("target", "stack", "decisions", "last", "without the entry")
    print_table(head, rows, empty="no stacks")
