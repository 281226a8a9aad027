"""``compatgate target``: the places to run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatgate.cli import target_from, target_what_if
from compatgate.cli.database import (
    add_authorship,
    add_format,
    add_limit,
    print_json,
    print_table,
    reason,
)
from compatgate.cli.gate import Body, add_place, ask, ask_all, perform

if TYPE_CHECKING:
    import argparse

    from compatgate.client import Client

_EXAMPLES = """\
examples:
  compatgate target list --label tier=prod
  compatgate target what-if prod-a100 --set driver=580.95.05
  kubectl get nodes,clusterpolicies,nvidiadrivers -o json | compatgate target from - --name prod

A target is made and changed with compatgate matrix import.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command and its actions."""
    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    shown = actions.add_parser("list", help="list targets")
    shown.add_argument("--label", metavar="KEY=VALUE", help="label")
    shown.add_argument("--gpu", metavar="GPU", help="GPU, as the target spells it")
    shown.add_argument("--driver", metavar="VERSION", help="driver")
    shown.add_argument("--search", metavar="TEXT", help="part of the name")
    add_limit(shown)
    show = actions.add_parser("show", help="print a target as a document")
    show.add_argument("name", metavar="NAME", help="name of the target")
    what_if = actions.add_parser(
        "what-if", help="show what another driver, GPU or CUDA would break or fix"
    )
    target_what_if.add_arguments(what_if)
    delete = actions.add_parser("delete", help="delete a target without entries or waivers")
    delete.add_argument("name", metavar="NAME", help="name of the target")
    add_authorship(delete)
    add_place(shown, show, delete)
    add_format(shown, show, delete)
    target_from.add_arguments(actions.add_parser("from", help=target_from.HELP))


def run(args: argparse.Namespace) -> int:
    """Do what was asked.

    Raises:
        NotFound: there is no such target.
        Conflict: entries or waivers name the target that is to be deleted.
    """
    if args.action == "what-if":
        return target_what_if.run(args)
    if args.action == "from":
        return target_from.run(args)
    return perform(args, {"list": _list, "show": _show, "delete": _delete})


def _list(args: argparse.Namespace, gate: Client) -> int:
    from compatgate.client.operations import Operations

    found = ask_all(
        gate,
        args.limit,
        Operations.list_targets,
        label=args.label,
        gpu=args.gpu,
        driver=args.driver,
        search=args.search,
    )
    if args.format == "json":
        print_json(found)
        return 0
    rows = [row for target in found for row in _rows(target)]
    head = ("target", "mode", "pool", "gpu", "driver", "nodes", "revision")
    print_table(head, rows, empty="no targets")
    return 0


def _rows(target: Body) -> list[tuple[object, ...]]:
    spec = target["spec"]
    return [
        (
            target["metadata"]["name"],
            spec["policy"]["mode"],
            pool["name"],
            pool["gpu"],
            pool["driver"],
            pool["count"],
            target["revision"],
        )
        for pool in spec["pools"]
    ]


def _show(args: argparse.Namespace, gate: Client) -> int:
    from compatgate.cli.matrix_views import document_of
    from compatgate.client.operations import Operations
    from compatgate.documents.write import to_yaml

    target = ask(gate, Operations.show_target, args.name)
    if args.format == "json":
        print_json(target)
    else:
        print(to_yaml([document_of(target)]), end="")
    return 0


def _delete(args: argparse.Namespace, gate: Client) -> int:
    why = reason(args, f"target delete {args.name}")
    revision = gate.delete_target(args.name, reason=why).revision
    if args.format == "json":
        print_json({"name": args.name, "deleted": True, "revision": revision})
    else:
        print(f"{args.name} is deleted (revision {revision})")
    return 0
