"""Run ``compatgate target``: list, show and delete targets; draft one; predict changes.

``from`` drafts a target from other projects' files, for review. ``what-if`` predicts which entries
another driver, GPU or CUDA breaks or fixes on a target.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from compatgate.cli.gate.opening import (
    ask_row,
    drop_storage_members,
    run_row,
)
from compatgate.errors import BadInput, InconclusiveInput
from compatgate.gate_client import Body
from compatgate.kit.cli.commands import Option, Row, add_rows, print_answer
from compatgate.kit.cli.terminal import strip_controls

if TYPE_CHECKING:
    import argparse

    from compatgate.discovery.integrations.drafts import Draft

_EXAMPLES = """\
examples:
  compatgate target list --label tier=prod
  compatgate target what-if prod-a100 --set driver=580.95.05
  kubectl get nodes,clusterpolicies,nvidiadrivers -o json | compatgate target from - --name prod

Create and change targets with compatgate matrix import.
"""


def _list_pools(targets: Iterable[Body]) -> list[Body]:
    """Return a line of the list for each pool."""
    return [
        {
            **pool,
            "target": target["metadata"]["name"],
            "mode": target["spec"]["policy"]["mode"],
            "revision": target["revision"],
        }
        for target in targets
        for pool in target["spec"]["pools"]
    ]


def _format_document(target: Body) -> str:
    from compatgate.documents.text import to_yaml

    return to_yaml([drop_storage_members(target)]).rstrip("\n")


LIST = Row(
    "list",
    "list_targets",
    "list targets",
    (
        Option("label", help="only targets with this label", metavar="KEY=VALUE"),
        Option("owner", help="only targets of this owner"),
        Option("gpu", help="GPU, exactly as the target spells it", metavar="GPU"),
        Option("driver", help="driver, exactly as the target states it", metavar="VERSION"),
        Option("search", help="part of the name", metavar="TEXT"),
    ),
    {
        "target": "target",
        "mode": "mode",
        "pool": "name",
        "gpu": "gpu",
        "driver": "driver",
        "nodes": "count",
        "revision": "revision",
    },
    "no targets",
)
_NAME = Option("name", metavar="NAME", help="name of the target")
SHOW = Row("show", "show_target", "print a target as a document", (_NAME,), text=_format_document)
DELETE = Row(
    "delete",
    "delete_target",
    "delete a target without entries or waivers",
    (_NAME,),
    text=lambda made: f"{made['name']} is deleted (revision {made['revision']})",
    reason="target delete {name}",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command and its actions."""
    from compatgate.cli.gate.comparison import what_if_arguments

    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    add_rows(actions, (LIST, SHOW))
    what_if = actions.add_parser(
        "what-if", help="show what another driver, GPU or CUDA would break or fix"
    )
    what_if_arguments(what_if)
    add_rows(actions, (DELETE,))
    add_from_arguments(actions.add_parser("from", help=FROM_HELP))


def run(args: argparse.Namespace) -> int:
    """Run an action."""
    if args.action == "what-if":
        from compatgate.cli.gate.comparison import run_what_if

        return run_what_if(args)
    if args.action == "from":
        return run_from(args)
    if args.action == "list":
        targets = ask_row(args, LIST)
        rows = targets if args.format == "json" else _list_pools(targets)
        return print_answer(args.format, LIST, rows)
    if args.action == "show":
        return run_row(args, SHOW)
    made = {"name": args.argument_name, "deleted": True, **ask_row(args, DELETE)}
    return print_answer(args.format, DELETE, made)


FROM_HELP = "draft a target from Kubernetes nodes and GPU Operator objects"
_FROM_EXAMPLES = """\
examples:
  compatgate target from nodes.yaml --name staging-h100 > target.yaml
  kubectl get nodes,clusterpolicies,nvidiadrivers -o json | compatgate target from - --name prod
  compatgate target from clusterpolicy.yaml --name next --gpu L4 --driver 595.91.07
  compatgate matrix import target.yaml

Values that no file states are left out and listed, with exit status 3: state them with options.
"""


def add_from_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments of ``target from``."""
    parser.epilog = _FROM_EXAMPLES
    parser.add_argument(
        "files", nargs="+", metavar="FILE|-", help="YAML or JSON files, read together"
    )
    parser.add_argument("--name", required=True, help="name of the target")
    parser.add_argument("--gpu", metavar="PRODUCT", help="GPU; overrides the files")
    parser.add_argument("--driver", metavar="VERSION", help="driver; overrides the files")
    parser.add_argument("--cpu", choices=("x86_64", "aarch64"), help="CPU; overrides the files")
    parser.add_argument(
        "--format", choices=("yaml", "json"), default="yaml", help="output format (default: yaml)"
    )


def run_from(args: argparse.Namespace) -> int:
    """Print the drafted target, with notes as comments (JSON: on standard error)."""
    from compatgate.catalog import load_facts
    from compatgate.discovery.integrations.drafts import draft_target, read_drafts
    from compatgate.discovery.node_labels import LARGEST
    from compatgate.documents.specs import NAME_PATTERN
    from compatgate.documents.text import to_json, to_yaml
    from compatgate.kit.cli.output import read_text

    if not re.fullmatch(NAME_PATTERN, args.name):
        hint = "letters, digits, and . _ - between them"
        raise BadInput("is not a target name", field="--name", value=args.name, hint=hint)
    facts = load_facts()
    if args.files.count("-") > 1:
        raise BadInput("standard input can be read only once", field="files")
    texts = [(_origin_name(path), read_text(path, "files", LARGEST)) for path in args.files]
    draft = read_drafts(texts, facts).filled(
        facts.gpus, gpu=args.gpu, driver=args.driver, cpu=args.cpu
    )
    document = draft_target(draft, args.name, facts.gpus)
    remarks = _list_remarks(draft)
    if args.format == "json":
        print("".join(f"note: {remark}\n" for remark in remarks), end="", file=sys.stderr)
        print(to_json([document]), end="")
    else:
        print("".join(f"# {remark}\n" for remark in remarks) + to_yaml([document]), end="")
    sys.stdout.flush()
    missing = [f"{pool.name}: {name}" for pool in draft.pools for name in pool.missing]
    if missing:
        raise InconclusiveInput(
            f"missing: {', '.join(missing)}",
            field=args.name,
            hint="state it with --gpu or --driver, or add a file that states it",
        )
    return 0


def _list_remarks(draft: Draft) -> list[str]:

    unknown = [
        f"pool {pool.name}: {name} is not known: {pool.why.get(name, 'nothing names it')}"
        for pool in draft.pools
        for name in pool.missing
    ]
    return [" ".join(strip_controls(text).split()) for text in (*unknown, *draft.notes)]


def _origin_name(path: str) -> str:
    return "standard input" if path == "-" else path
