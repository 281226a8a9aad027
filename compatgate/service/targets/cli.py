"""Run ``compatgate target``: list, show and delete targets; draft one; predict changes.

``from`` drafts a target from other projects' files, for review. ``what-if`` predicts which entries
another driver, GPU or CUDA breaks or fixes on a target.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

from compatgate.check.formats.text import fix_option, format_stack, headline
from compatgate.core.rule import exit_code
from compatgate.errors import BadInput, InconclusiveInput
from compatgate.kit.cli.options import (
    add_authorship,
    add_change_options,
    add_format,
    add_limit,
    reason_of,
)
from compatgate.kit.cli.output import print_json, print_list
from compatgate.kit.cli.parser import server_of
from compatgate.kit.cli.terminal import paint, strip_controls, wrap
from compatgate.service.gate_client import (
    Body,
    Operations,
    add_place,
    ask,
    ask_all,
    gate_of,
    run_action,
)

if TYPE_CHECKING:
    import argparse

    from compatgate.client import Client
    from compatgate.discovery.integrations.drafts import Draft
    from compatgate.discovery.node_labels import Node

_EXAMPLES = """\
examples:
  compatgate target list --label tier=prod
  compatgate target what-if prod-a100 --set driver=580.95.05
  kubectl get nodes,clusterpolicies,nvidiadrivers -o json | compatgate target from - --name prod

Create and change targets with compatgate matrix import.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command and its actions."""
    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    shown = actions.add_parser("list", help="list targets")
    shown.add_argument("--label", metavar="KEY=VALUE", help="only targets with this label")
    shown.add_argument("--owner", help="only targets of this owner")
    shown.add_argument("--gpu", metavar="GPU", help="GPU, exactly as the target spells it")
    shown.add_argument(
        "--driver", metavar="VERSION", help="driver, exactly as the target states it"
    )
    shown.add_argument("--search", metavar="TEXT", help="part of the name")
    add_limit(shown)
    show = actions.add_parser("show", help="print a target as a document")
    show.add_argument("name", metavar="NAME", help="name of the target")
    what_if = actions.add_parser(
        "what-if", help="show what another driver, GPU or CUDA would break or fix"
    )
    add_what_if_arguments(what_if)
    delete = actions.add_parser("delete", help="delete a target without entries or waivers")
    delete.add_argument("name", metavar="NAME", help="name of the target")
    add_authorship(delete)
    add_place(shown, show, delete)
    add_format(shown, show, delete)
    add_from_arguments(actions.add_parser("from", help=FROM_HELP))


def run(args: argparse.Namespace) -> int:
    """Run an action."""
    if args.action == "what-if":
        return run_what_if(args)
    if args.action == "from":
        return run_from(args)
    return run_action(args, {"list": _list, "show": _show, "delete": _delete})


def _list(args: argparse.Namespace, gate: Client) -> int:
    found = ask_all(
        gate,
        args.limit,
        Operations.list_targets,
        label=args.label,
        owner=args.owner,
        gpu=args.gpu,
        driver=args.driver,
        search=args.search,
    )
    rows = (row for target in found for row in _target_rows(target))
    head = ("target", "mode", "pool", "gpu", "driver", "nodes", "revision")
    return print_list(found, args.format, head, rows, empty="no targets")


def _target_rows(target: Body) -> list[tuple[object, ...]]:
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
    from compatgate.documents.text import to_yaml
    from compatgate.service.gate_client import drop_storage_members

    target = ask(gate, Operations.show_target, args.name)
    if args.format == "json":
        print_json(target)
    else:
        print(to_yaml([drop_storage_members(target)]), end="")
    return 0


def _delete(args: argparse.Namespace, gate: Client) -> int:
    why = reason_of(args, f"target delete {args.name}")
    revision = gate.delete_target(args.name, reason=why).revision
    if args.format == "json":
        print_json({"name": args.name, "deleted": True, "revision": revision})
    else:
        print(f"{args.name} is deleted (revision {revision})")
    return 0


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
    from compatgate.kit.cli.terminal import strip_controls

    unknown = [
        f"pool {pool.name}: {name} is not known: {pool.why.get(name, 'nothing names it')}"
        for pool in draft.pools
        for name in pool.missing
    ]
    return [" ".join(strip_controls(text).split()) for text in (*unknown, *draft.notes)]


def _origin_name(path: str) -> str:
    return "standard input" if path == "-" else path


_WHAT_IF_EXAMPLES = """\
examples:
  compatgate target what-if prod-a100 --set driver=580.95.05
  compatgate target what-if prod-a100 --pool a100-80 --set driver=580.95.05 --format json
  kubectl get node gpu-7 -o json | compatgate target what-if --node - --set driver=580.95.05

exit status: 0 no entry in use breaks, 1 an entry breaks, 2 bad input, 3 unknown. Findings that the
target's policy only warns about give 0.
"""


def add_what_if_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments of ``target what-if``."""
    parser.epilog = _WHAT_IF_EXAMPLES
    parser.add_argument("name", nargs="?", metavar="NAME", help="target; optional with a node")
    add_change_options(parser)
    parser.add_argument(
        "--node",
        metavar="FILE",
        help="use target and pool of this Kubernetes node: output of kubectl get node NAME -o json"
        ' ("-": standard input)',
    )
    add_place(parser)
    parser.add_argument("--bundle", metavar="FILE", help="decide from this bundle")
    add_format(parser)


def run_what_if(args: argparse.Namespace) -> int:
    """Predict which entries would break and which would improve.

    Returns:
        0: no entry breaks; 1: an entry breaks; 3: unknown.
    """
    body = _read_question(args)
    found = _ask_gate(args, body)
    if args.format == "json":
        from compatgate.kit.cli.output import print_json

        print_json(found)
    else:
        from compatgate.kit.cli.terminal import wants_colour, width_of

        print(render_what_if(found, width_of(sys.stdout), colour=wants_colour(sys.stdout)))
    return exit_code(found["verdict"], allowed=found["allowed"])


def _read_question(args: argparse.Namespace) -> dict[str, Any]:
    from compatgate.check.question import read_changes

    changes = read_changes(args.set)
    if not changes:
        raise BadInput("names no change", field="--set", hint="for example --set driver=580.95.05")
    body: dict[str, Any] = {"set": changes, "target": args.name, "pool": args.pool}
    if args.node:
        node = _read_node(args.node)
        body["node"] = {"name": node.name, "labels": node.labels}
        body["target"] = args.name or node.target or None
    elif not args.name:
        raise BadInput("name a target, or a node with --node", field="NAME")
    return {key: value for key, value in body.items() if value is not None}


def _read_node(path: str) -> Node:
    from compatgate.discovery.node_labels import read_nodes
    from compatgate.kit.cli.output import read_text

    nodes = read_nodes(read_text(path, "--node"), origin="--node")
    if len(nodes) > 1:
        hint = "name one node at a time"
        raise BadInput(f"must contain one node, but has {len(nodes)}", field="--node", hint=hint)
    return nodes[0]


def _ask_gate(args: argparse.Namespace, body: dict[str, Any]) -> dict[str, Any]:
    server_of(args)  # rejects more than one source
    if args.bundle:
        return _ask_bundle(args.bundle, body)
    with gate_of(args) as gate:
        return ask(gate, Operations.what_if, body)


def _ask_bundle(path: str, body: dict[str, Any]) -> dict[str, Any]:
    from compatgate.kit import clock
    from compatgate.service.gate.snapshot import load_bundle
    from compatgate.service.gate.what_if import answer

    return answer(body, load_bundle(path).snapshot(), clock.now()).to_json()


_MARKS = {
    "breaks": ("BREAKS", "red"),
    "open": ("UNKNOWN", "yellow"),
    "worsens": ("WORSE", "yellow"),
    "improves": ("BETTER", "green"),
    "same": ("SAME", "dim"),
}


def render_what_if(found: dict[str, Any], width: int, *, colour: bool) -> str:
    """Return the prediction as text, at most ``width`` columns wide."""
    answer, hue = headline(found)
    first, *rest = wrap(f"{answer}: {found['summary']}", width)
    lines = [paint(answer, "bold", hue, colour=colour) + first.removeprefix(answer), *rest]
    for remark in found["remarks"]:
        lines += wrap(f"note: {remark}", width)
    for finding in found["host"]:
        lines += ["", *_render_finding(finding, width, indent="")]
    for entry in found["entries"]:
        lines += ["", *_render_entry(entry, width, colour=colour)]
    facts = str(found["facts"])[:19]
    lines += ["", f"matrix revision {found['matrix_revision']}, facts {facts}; nothing was logged"]
    return "\n".join(lines)


def _render_entry(entry: dict[str, Any], width: int, *, colour: bool) -> list[str]:
    kind = "open" if entry["verdict"] == "unknown" else entry["change"]
    mark, hue = _MARKS[kind]
    shown = paint(f"{mark:<7}", "bold", hue, colour=colour)
    lines = [f"{shown} {strip_controls(entry['entry'])} ({entry['status']})"]
    for reason in entry["open"]:
        lines += [f"  {line}" for line in wrap(reason, width - 2)]
    for pool in entry["pools"]:
        text = (
            f"{pool['pool']}: {pool['before']} -> {pool['after']}, as {format_stack(pool['stack'])}"
        )
        lines += [f"  {line}" for line in wrap(text, width - 2)]
        for finding in pool["lost"]:
            lines += _render_finding(finding, width, indent="    ")
        for finding in pool["gained"]:
            lines += _wrap_indented(f"resolved: {_finding_text(finding)}", width, "    ")
    return lines


def _render_finding(finding: dict[str, Any], width: int, *, indent: str) -> list[str]:
    lines = _wrap_indented(f"{finding['outcome']} {_finding_text(finding)}", width, indent)
    for fix in finding["fixes"][:1]:
        lines += _wrap_indented(
            f"fix: {fix['message']}: {fix_option(fix['set'])}", width, f"{indent}  "
        )
    return lines


def _finding_text(finding: dict[str, Any]) -> str:
    return f"{finding['rule']} {finding['name']}: {finding['message']}"


def _wrap_indented(text: str, width: int, indent: str) -> list[str]:
    return [f"{indent}{line}" for line in wrap(text, max(width - len(indent), 30))]
