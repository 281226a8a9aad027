"""Run ``compatgate target``: list, show and delete targets; draft one; predict changes.

``from`` drafts a target from other projects' files, for review. ``what-if`` predicts which entries
another driver, GPU or CUDA breaks or fixes on a target.
"""

from __future__ import annotations

import argparse
import re
import sys

from compatgate.catalog import load_facts
from compatgate.cli.commands import Group, Row, columns
from compatgate.cli.gate import drop_storage_members
from compatgate.cli.gate.comparison import run_what_if
from compatgate.discovery.drafts import draft_target, read_drafts
from compatgate.discovery.node_labels import LARGEST
from compatgate.documents.specs import NAME_PATTERN
from compatgate.documents.text import to_json, to_yaml
from compatgate.errors import BadInput, InconclusiveInput
from compatgate.kit.cli.output import name_input, read_text
from compatgate.kit.cli.terminal import say, strip_controls
from compatgate.kit.cli.usage import action


@action(
    "draft a target from Kubernetes nodes and GPU Operator objects",
    """\
files: FILE|- ...       YAML or JSON files, read together
--name NAME (required)  name of the target
--gpu PRODUCT           GPU; overrides the files
--driver VERSION        driver; overrides the files
--cpu {x86_64,aarch64}  CPU; overrides the files
--format {yaml,json} = yaml  output format
""",
    epilog="""\
examples:
  compatgate target from nodes.yaml --name staging-h100 > target.yaml
  kubectl get nodes,clusterpolicies,nvidiadrivers -o json | compatgate target from - --name prod
  compatgate target from clusterpolicy.yaml --name next --gpu L4 --driver 595.91.07
  compatgate matrix import target.yaml

Values that no file states are left out and listed, with exit status 3: state them with options.
""",
)
def run_from(args: argparse.Namespace) -> int:
    """Print the drafted target, with notes as comments (JSON: on standard error)."""
    if not re.fullmatch(NAME_PATTERN, args.name):
        hint = "letters, digits, and . _ - between them"
        raise BadInput("is not a target name", field="--name", value=args.name, hint=hint)
    facts = load_facts()
    if args.files.count("-") > 1:
        raise BadInput("standard input can be read only once", field="files")
    texts = [(name_input(path), read_text(path, "files", LARGEST)) for path in args.files]
    draft = read_drafts(texts, facts).filled(
        facts.gpus, gpu=args.gpu, driver=args.driver, cpu=args.cpu
    )
    document = draft_target(draft, args.name, facts.gpus)
    remarks = [
        *(
            f"pool {pool.name}: {name} is not known: {pool.why.get(name, 'nothing names it')}"
            for pool in draft.pools
            for name in pool.missing
        ),
        *draft.notes,
    ]
    remarks = [" ".join(strip_controls(text).split()) for text in remarks]
    if args.format == "json":
        for remark in remarks:
            say(f"note: {remark}")
        print(to_json([document]), end="")
    else:
        print("".join(f"# {remark}\n" for remark in remarks) + to_yaml([document]), end="")
    sys.stdout.flush()
    missing = [f"{pool.name}: {name}" for pool in draft.pools for name in pool.missing]
    if missing:
        what = f"missing: {', '.join(missing)}"
        hint = "state it with --gpu or --driver, or add a file that states it"
        raise InconclusiveInput(what, field=args.name, hint=hint)
    return 0


DELETE: Row = Row(
    "delete_target",
    text="{name} is deleted (revision {revision})",
    reason="target delete {name}",
    answer=lambda args: {"name": args.name, "deleted": True, **DELETE.ask(args)},
)
run = Group(
    {
        "list": Row(
            "list_targets",
            "--label KEY=VALUE\n...",
            columns(
                *("target: of.metadata.name", "mode: of.spec.policy.mode", "pool: name"),
                *("gpu", "driver", "nodes: count", "revision: of.revision"),
            ),
            items=lambda targets, args: [
                {**pool, "of": target} for target in targets for pool in target["spec"]["pools"]
            ],
        ),
        "show": Row(
            "show_target",
            text=lambda target: to_yaml([drop_storage_members(target)]).rstrip("\n"),
            summary="print a target as a document",
        ),
        "what-if": run_what_if,
        "delete": DELETE,
        "from": run_from,
    },
    epilog="""\
Create and change targets with compatgate matrix import.
""",
)
