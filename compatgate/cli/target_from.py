"""``compatgate target from``: a target document from other projects' files, to be reviewed."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from compatgate.errors import BadInput, Inconclusive

if TYPE_CHECKING:
    import argparse

    from compatgate.discovery.neighbours import Draft

HELP = "print a target as AICR snapshots or recipes, GPU Operator objects or nodes describe it"

_EXAMPLES = """\
examples:
  compatgate target from snapshot.yaml --name staging-h100 > target.yaml
  kubectl get nodes,clusterpolicies,nvidiadrivers -o json | compatgate target from - --name prod
  compatgate target from recipe.yaml --name next --driver 595.91.07
  compatgate matrix import target.yaml

What no file tells is left out and named, with exit status 3: state it with an option.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action: the files, the target's name, and what is stated."""
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "files", nargs="+", metavar="FILE|-", help="YAML or JSON files, read together"
    )
    parser.add_argument("--name", required=True, help="name of the target")
    parser.add_argument("--gpu", metavar="PRODUCT", help="GPU, if the files name none or another")
    parser.add_argument("--driver", metavar="VERSION", help="likewise")
    parser.add_argument("--cpu", choices=("x86_64", "aarch64"), help="likewise")
    parser.add_argument(
        "--format", choices=("yaml", "json"), default="yaml", help="output format (default: yaml)"
    )


def run(args: argparse.Namespace) -> int:
    """Print the document, what is to be known about it as comments (JSON: on standard error).

    Raises:
        BadInput: a file is none of the known kinds, or names a GPU that the facts do not know.
        Inconclusive: a pool has no GPU or no driver that anything names.
    """
    from compatgate.catalog import load_facts
    from compatgate.cli.check.observed import read_text
    from compatgate.discovery.neighbours import draft_target, read_neighbours
    from compatgate.discovery.node_labels.read import LARGEST
    from compatgate.documents.specs import NAME_PATTERN
    from compatgate.documents.write import to_json, to_yaml

    if not re.fullmatch(NAME_PATTERN, args.name):
        hint = "letters, digits, and . _ - between them"
        raise BadInput("is no name of a target", field="--name", value=args.name, hint=hint)
    facts = load_facts()
    if args.files.count("-") > 1:
        raise BadInput("standard input can be read once", field="files")
    texts = [(_origin(path), read_text(path, "files", LARGEST)) for path in args.files]
    draft = read_neighbours(texts, facts).filled(
        facts.gpus, gpu=args.gpu, driver=args.driver, cpu=args.cpu
    )
    document = draft_target(draft, args.name, facts.gpus)
    remarks = _remarks(draft)
    if args.format == "json":
        print("".join(f"note: {remark}\n" for remark in remarks), end="", file=sys.stderr)
        print(to_json([document]), end="")
    else:
        print("".join(f"# {remark}\n" for remark in remarks) + to_yaml([document]), end="")
    sys.stdout.flush()
    missing = [f"{pool.name}: {name}" for pool in draft.pools for name in pool.missing]
    if missing:
        raise Inconclusive(
            f"not known: {', '.join(missing)}",
            field=args.name,
            hint="state it with --gpu or --driver, or give a file that tells it",
        )
    return 0


def _remarks(draft: Draft) -> list[str]:
    from compatgate.cli.terminal import printable

    unknown = [
        f"pool {pool.name}: {name} is not known: {pool.why.get(name, 'nothing names it')}"
        for pool in draft.pools
        for name in pool.missing
    ]
    return [" ".join(printable(text).split()) for text in (*unknown, *draft.notes)]


def _origin(path: str) -> str:
    return "standard input" if path == "-" else path
