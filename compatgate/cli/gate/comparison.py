"""Run what-if questions, backtests, dependents and the packages report.

They are actions of ``compatgate target`` and ``compatgate matrix``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from compatgate.cli.gate.opening import Operations, add_place, gate_of
from compatgate.core.rule import EXIT_ALLOWED, exit_code
from compatgate.documents.sources import read_paths
from compatgate.errors import BadInput, ManyProblems
from compatgate.gate_client import ask
from compatgate.kit.cli.options import add_change_options, add_format, read_moment
from compatgate.kit.cli.parser import positive_count, server_of
from compatgate.service.changes.comparison.matrix_sections import (
    backtest_status,
    packages_status,
    report_backtest,
    report_dependents,
    report_packages,
)
from compatgate.service.changes.comparison.render import Body, print_reports
from compatgate.service.changes.comparison.schemas import PACKAGES_DECISIONS, QUESTIONS
from compatgate.service.changes.comparison.sections import report_what_if
from compatgate.service.matrix.proposals.schemas import DAYS, PROPOSAL_ID

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from compatgate.client import Client
    from compatgate.discovery.node_labels import Node
    from compatgate.documents.sources import Source


# --- target what-if --------------------------------------------------------------------------

_WHAT_IF_EXAMPLES = """\
examples:
  compatgate target what-if prod-a100 --set driver=580.95.05
  compatgate target what-if prod-a100 --pool a100-80 --set driver=580.95.05 --format json
  kubectl get node gpu-7 -o json | compatgate target what-if --node - --set driver=580.95.05

exit status: 0 no entry in use breaks, 1 an entry breaks, 2 bad input, 3 unknown. Findings that the
target's policy only warns about give 0.
"""


def what_if_arguments(parser: argparse.ArgumentParser) -> None:
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
    """Predict which entries would break and which would improve."""
    body = _read_question(args)
    server_of(args)  # rejects more than one source
    if args.bundle:
        answer = _ask_bundle(args.bundle, body)
    else:
        with gate_of(args) as gate:
            answer = ask(gate, Operations.what_if, body)
    print_reports([report_what_if(answer)], answer, args.format)
    return exit_code(answer["verdict"], allowed=answer["allowed"])


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


def _ask_bundle(path: str, body: Body) -> Body:
    from compatgate.kit import clock
    from compatgate.service.changes.comparison.service import answer_in_json
    from compatgate.service.matrix.snapshots.snapshot import load_bundle

    return answer_in_json(body, load_bundle(path).snapshot(), clock.now())


# --- matrix backtest -------------------------------------------------------------------------

_BACKTEST_EXAMPLES = """\
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
"""


def backtest_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments of ``matrix backtest``."""
    parser.epilog = _BACKTEST_EXAMPLES
    parser.add_argument(
        "files",
        nargs="*",
        metavar="FILE|DIR|-|ID",
        help='documents to create or change: files, folders, or "-" for standard input; or the id'
        " of a proposal, which keeps the result",
    )
    parser.add_argument(
        "--delete",
        metavar="KIND/NAME",
        action="append",
        default=[],
        help="document to delete, like Entry/torch24-cu124; may be repeated",
    )
    parser.add_argument(
        "--proposal",
        metavar="ID",
        help="backtest a proposal and store the result with the proposal",
    )
    add_period(parser)
    add_format(parser, markdown=True)


def add_period(parser: argparse.ArgumentParser) -> None:
    """Add the options that limit the questions of a backtest."""
    parser.add_argument(
        "--days",
        type=positive_count,
        metavar="N",
        default=DAYS,
        help=f"use the decisions of N days (default: {DAYS})",
    )
    parser.add_argument(
        "--questions",
        type=positive_count,
        metavar="N",
        default=QUESTIONS,
        help=f"decide at most N different questions, the latest (default: {QUESTIONS})",
    )


def run_backtest(args: argparse.Namespace, gate: Client) -> int:
    """Print the backtest of a change."""
    if args.proposal and (args.files or args.delete):
        raise BadInput(
            "cannot be combined with FILE or --delete", field="--proposal", value=args.proposal
        )
    if not args.proposal and not args.files and not args.delete:
        hint = "matrix backtest FILE..., --delete Entry/NAME, or --proposal ID"
        raise BadInput("names no change", field="FILE", hint=hint)
    if number := args.proposal or _find_proposal_id(args):
        answer = _ask_proposal(gate, number, args.days)
    else:
        deleted = [read_document_name(text) for text in args.delete]
        bounds = {"days": args.days, "questions": args.questions}
        answer = ask_backtest(gate, read_paths(args.files), deleted, **bounds)
    print_backtest(answer, args.format)
    return backtest_status(answer)


def _find_proposal_id(args: argparse.Namespace) -> str | None:
    """Return the proposal that is named where files could be; None: there are files."""
    if len(args.files) == 1 and not args.delete and PROPOSAL_ID.fullmatch(args.files[0]):
        return str(args.files[0])
    return None


def _ask_proposal(gate: Client, number: str, days: int) -> Body:
    answer: Body = ask(gate, Operations.backtest_proposal, number, days=days)["backtest"]
    return answer


def ask_backtest(
    gate: Client, sources: Sequence[Source], deleted: Sequence[Body] = (), **bounds: Any
) -> Body:
    """Return the backtest of files and deletions; ``bounds`` are ``days`` and ``questions``."""
    from compatgate.cli.matrix.files import join_files

    body: Body = {"delete": list(deleted), **bounds}
    if not sources:
        return ask(gate, Operations.backtest, body)
    whole = join_files(sources)
    try:
        return ask(gate, Operations.backtest, {**body, "yaml": whole.text, "file": whole.file})
    except ManyProblems as error:
        raise whole.locate_errors(error) from None


def print_backtest(answer: Body, form: str) -> None:
    """Print a backtest as text, JSON or Markdown."""
    print_reports([report_backtest(answer)], answer, form)


def read_document_name(text: str) -> Body:
    """Read ``Entry/NAME``, an option that names a document."""
    from compatgate.documents.specs import KINDS

    kind, slash, name = text.partition("/")
    kinds = {known.lower(): known for known in KINDS}
    if not slash or not name or kind.lower() not in kinds:
        hint = f"like Entry/torch24-cu124; kinds: {', '.join(KINDS)}"
        raise BadInput("is not of the form KIND/NAME", field="--delete", value=text, hint=hint)
    return {"kind": kinds[kind.lower()], "name": name}


# --- matrix dependents -----------------------------------------------------------------------


def dependents_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``matrix dependents``."""
    parser.add_argument("name", metavar="ENTRY", help="name of the entry")
    add_format(parser)


def show_dependents(args: argparse.Namespace, gate: Client) -> int:
    """Run ``matrix dependents``."""
    answer = ask(gate, Operations.list_dependents, args.name)
    print_reports([report_dependents(answer)], answer, args.format)
    return 0


# --- matrix packages-report ------------------------------------------------------------------

_PACKAGES_EXAMPLES = """\
examples:
  compatgate matrix packages-report
  compatgate matrix packages-report --target prod-a100 --since 2026-11-03 --format json

Checks the targets whose policy says packages: audit. Resolve the open packages, then change
the policy to packages: enforce.

exit status: 0 enforce would stop nothing, 1 enforce would stop a decision or an entry, 2 bad
input, 3 unknown: a target has neither decisions nor entries, or not everything could be checked.
"""


def packages_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments of ``matrix packages-report``."""
    parser.epilog = _PACKAGES_EXAMPLES
    parser.add_argument("--target", help="only this target")
    parser.add_argument(
        "--since", metavar="TIME", help=f"time of the first decision (default: {DAYS} days ago)"
    )
    parser.add_argument(
        "--decisions",
        type=positive_count,
        metavar="N",
        default=PACKAGES_DECISIONS,
        help=f"check at most N decisions, the newest (default: {PACKAGES_DECISIONS})",
    )
    add_format(parser)


def run_packages(args: argparse.Namespace, gate: Client) -> int:
    """Print the packages report."""
    since = read_moment(args.since, "--since")
    report = gate.packages_report(target=args.target, since=since, decisions=args.decisions)
    answer = msgspec.to_builtins(report)
    if not report.targets and args.format == "text":
        print(f"{args.target or 'every target'} enforces packages: nothing to report")
        return EXIT_ALLOWED
    print_reports([report_packages(answer)] if report.targets else [], answer, args.format)
    return packages_status(answer)
