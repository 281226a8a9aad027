"""Run what-if questions, plans, backtests, dependents and the packages report."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from compatgate.check.question import read_changes
from compatgate.cli.commands import Row
from compatgate.cli.gate import Client, Operations, asking, gate_of
from compatgate.cli.matrix.files import join_files
from compatgate.core.rule import exit_code, worst_exit
from compatgate.discovery.node_labels import read_nodes
from compatgate.documents.sources import Source, read_paths
from compatgate.documents.specs import KINDS, key_of, to_body
from compatgate.errors import BadInput
from compatgate.gate_client import ask
from compatgate.kit import clock
from compatgate.kit.cli.options import CHANGES, FORMAT, FORMAT_OR_MARKDOWN, PLACE
from compatgate.kit.cli.output import read_text, wants_colour, width_of
from compatgate.kit.cli.parser import server_of
from compatgate.kit.cli.usage import action, command
from compatgate.service.changes.comparison.matrix_sections import (
    backtest_status,
    packages_status,
    report_backtest,
    report_dependents,
    report_packages,
)
from compatgate.service.changes.comparison.schemas import QUESTIONS
from compatgate.service.changes.comparison.sections import (
    Body,
    Report,
    print_reports,
    render_text,
    report_plan,
    report_what_if,
)
from compatgate.service.matrix.proposals.schemas import DAYS, PROPOSAL_ID
from compatgate.service.matrix.snapshots.snapshot import load_bundle

PERIOD = f"""\
--days N = {DAYS}            use the decisions of N days
--questions N = {QUESTIONS}  decide at most N different questions, the latest
"""


@action(
    "show what another driver, GPU or CUDA would break or fix",
    "[NAME]  target; optional with a node",
    CHANGES,
    """\
--node FILE  use target and pool of this Kubernetes node: output of kubectl get node NAME -o json
             ("-": standard input)
""",
    PLACE,
    "--bundle FILE  decide from this bundle",
    FORMAT,
    epilog="""\
examples:
  compatgate target what-if prod-a100 --set driver=580.95.05
  compatgate target what-if prod-a100 --pool a100-80 --set driver=580.95.05 --format json
  kubectl get node gpu-7 -o json | compatgate target what-if --node - --set driver=580.95.05

exit status: 0 no entry in use breaks, 1 an entry breaks, 2 bad input, 3 unknown. Findings that the
target's policy only warns about give 0.
""",
)
def run_what_if(args: argparse.Namespace) -> int:
    """Predict which entries would break and which would improve."""
    changes = read_changes(args.set)
    if not changes:
        raise BadInput("names no change", field="--set", hint="for example --set driver=580.95.05")
    if not args.node and not args.name:
        raise BadInput("name a target, or a node with --node", field="NAME")
    body = {"set": changes, "target": args.name, "pool": args.pool}
    if args.node:
        nodes = read_nodes(read_text(args.node, "--node"), origin="--node")
        if len(nodes) > 1:
            what = f"must contain one node, but has {len(nodes)}"
            raise BadInput(what, field="--node", hint="name one node at a time")
        body["node"] = {"name": nodes[0].name, "labels": nodes[0].labels}
        body["target"] = args.name or nodes[0].target or None
    body = {key: value for key, value in body.items() if value is not None}
    server_of(args)  # rejects more than one source
    if args.bundle:
        from compatgate.service.changes.comparison.service import answer_in_json

        answer = answer_in_json(body, load_bundle(args.bundle).snapshot(), clock.now())
    else:
        with gate_of(args) as gate:
            answer = ask(gate, Operations.what_if, body)
    print_reports([report_what_if(answer)], answer, args.format)
    return exit_code(answer["verdict"], allowed=answer["allowed"])


@asking(
    "show which recorded verdicts a change would alter",
    """\
[files: FILE|DIR|-|ID ...]
    documents to create or change: files, folders, or "-" for standard input; or the id of a
    proposal, which keeps the result
--delete KIND/NAME ...  document to delete, like Entry/torch24-cu124; may be repeated
--proposal ID           backtest a proposal and store the result with the proposal
""",
    PERIOD,
    form=FORMAT_OR_MARKDOWN,
    epilog="""\
examples:
  compatgate matrix backtest entries.yaml
  compatgate matrix backtest ./matrix --days 7 --format markdown
  compatgate matrix backtest --delete Entry/torch24-cu124
  compatgate matrix backtest --proposal pr_52f3d1a2b4c6e8f0
  compatgate matrix backtest pr_52f3d1a2b4c6e8f0

Decides the questions of the decision log, and the stacks of canary runs, on the current matrix and
on the matrix with the change. Stores nothing, except with a proposal.

exit status: 0 nothing is newly denied, 1 something is newly denied, 2 bad input, 3 something is
newly unknown, or not every question could be decided.
""",
)
def run_backtest(args: argparse.Namespace, gate: Client) -> int:
    """Print the backtest of a change."""
    named = (*args.files, *args.delete)
    if args.proposal and named:
        what = "cannot be combined with FILE or --delete"
        raise BadInput(what, field="--proposal", value=args.proposal)
    if not args.proposal and not named:
        hint = "matrix backtest FILE..., --delete Entry/NAME, or --proposal ID"
        raise BadInput("names no change", field="FILE", hint=hint)
    proposal = args.proposal
    if len(named) == 1 and args.files and PROPOSAL_ID.fullmatch(args.files[0]):
        proposal = args.files[0]
    if proposal:
        answer = ask(gate, Operations.backtest_proposal, proposal, days=args.days)["backtest"]
    else:
        deleted = [read_document_name(text) for text in args.delete]
        bounds = {"days": args.days, "questions": args.questions}
        answer = ask_backtest(gate, read_paths(args.files), deleted, **bounds)
    print_reports([report_backtest(answer)], answer, args.format)
    return backtest_status(answer)


def ask_backtest(
    gate: Client, sources: Sequence[Source], deleted: Sequence[Body] = (), **bounds: Any
) -> Body:
    """Return the backtest of files and deletions; ``bounds`` are ``days`` and ``questions``."""
    body: Body = {"delete": list(deleted), **bounds}
    if not sources:
        return ask(gate, Operations.backtest, body)
    whole = join_files(sources)
    with whole.locating():
        return ask(gate, Operations.backtest, {**body, "yaml": whole.text, "file": whole.file})


def read_document_name(text: str) -> Body:
    """Read ``Entry/NAME``, an option that names a document."""
    kind, slash, name = text.partition("/")
    kinds = {known.lower(): known for known in KINDS}
    if not slash or not name or kind.lower() not in kinds:
        hint = f"like Entry/torch24-cu124; kinds: {', '.join(KINDS)}"
        raise BadInput("is not of the form KIND/NAME", field="--delete", value=text, hint=hint)
    return {"kind": kinds[kind.lower()], "name": name}


def _render(report: Report) -> str:
    return render_text(report, width_of(sys.stdout), colour=wants_colour(sys.stdout))


DEPENDENTS = Row(
    "list_dependents",
    "name: ENTRY",
    text=lambda answer: _render(report_dependents(answer)),
    summary="list the targets, recorded stacks and nodes that depend on an entry",
)
PACKAGES = Row(
    "packages_report",
    text=lambda answer: (
        _render(report_packages(answer))
        if answer["targets"]
        else "every target enforces packages: nothing to report"
    ),
    status=lambda answer, _: packages_status(answer),
    summary="show what packages: enforce would stop on targets that audit packages",
    epilog="""\
examples:
  compatgate matrix packages-report
  compatgate matrix packages-report --target prod-a100 --since 2026-11-03 --format json

Checks the targets whose policy says packages: audit. Resolve the open packages, then change
the policy to packages: enforce.

exit status: 0 enforce would stop nothing, 1 enforce would stop a decision or an entry, 2 bad
input, 3 unknown: a target has neither decisions nor entries, or not everything could be checked.
""",
)


@command(
    """\
--target NAME ... (required)  target to upgrade; may be repeated, one plan per target
--upgrade driver|cuda[=VERSION] ...
    upgrade the driver (to the newest branch of its kind, or driver=580) or CUDA (to the series that
    the driver brings, or cuda=13.0); may be repeated
""",
    CHANGES,
    """\
--rack-label LABEL ...  node label whose value names a rack (default: known topology labels)
""",
    PLACE,
    "--bundle FILE  decide from a bundle, without recorded decisions and nodes",
    FORMAT_OR_MARKDOWN,
    epilog="""\
examples:
  compatgate plan --target prod-a100 --upgrade driver
  compatgate plan --target prod-a100 --upgrade driver=580 --upgrade cuda=13.0
  compatgate plan --target prod-a100 --set driver=580.95.05 --format markdown > plan.md
  compatgate plan --target prod-a100 --target inference-l4 --upgrade driver=580

exit status: 0 nothing in use breaks, 1 something breaks, 2 bad input, 3 unknown; the worst of
several targets. Findings that the target's policy only warns about give 0. Several targets give
JSON {"plans": [...]}, one plan each.
""",
)
def run_plan(args: argparse.Namespace) -> int:
    """Print one plan for each target."""
    if args.pool and len(args.target) > 1:
        hint = "ask about each target alone, or omit --pool"
        raise BadInput("needs a single --target", field="--pool", value=args.pool, hint=hint)
    changes = read_changes(args.set)
    if not changes and not args.upgrade:
        hint = "like --upgrade driver, or --set driver=580.95.05"
        raise BadInput("names no change", field="--upgrade", hint=hint)
    stated = {"set": changes, "upgrade": args.upgrade, "pool": args.pool}
    stated["rack_labels"] = args.rack_label
    body = {key: value for key, value in stated.items() if value}
    server_of(args)  # rejects more than one source
    if args.bundle:
        plans = _plan_by_bundle(args.bundle, args.target, body)
    else:
        with gate_of(args) as gate:
            plans = [ask(gate, Operations.plan, target, body) for target in args.target]
    answer = plans[0] if len(plans) == 1 else {"plans": plans}
    print_reports([report_plan(plan) for plan in plans], answer, args.format)
    return worst_exit(*(exit_code(one["verdict"], allowed=one["allowed"]) for one in plans))


def _plan_by_bundle(path: str, targets: list[str], body: Body) -> list[Body]:
    from compatgate.service.changes.comparison.service import answer_plan

    bundle = load_bundle(path)
    documents = {key_of(one.document): one.document for one in bundle.payload.documents}

    def find(name: str) -> dict[str, Any] | None:
        document = documents.get(("Entry", name))
        return to_body(document) if document else None

    remark = "a bundle has no decisions and no nodes: neither running stacks nor waves are known"
    snapshot, now = bundle.snapshot(), clock.now()
    return [
        answer_plan(body, target, snapshot, now, remarks=(remark,), find=find) for target in targets
    ]
