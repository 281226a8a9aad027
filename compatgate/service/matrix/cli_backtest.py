"""Run ``compatgate matrix backtest``: what files would have answered to recorded questions."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from compatgate.documents.sources import read_paths
from compatgate.errors import BadInput, ManyProblems
from compatgate.kit.cli.options import add_format
from compatgate.kit.cli.output import print_json
from compatgate.kit.cli.parser import positive_count
from compatgate.kit.cli.terminal import wants_colour, width_of
from compatgate.service.backtests import formats
from compatgate.service.backtests.schemas import DAYS, QUESTIONS
from compatgate.service.gate_client import Body, Operations, ask
from compatgate.service.proposals.cli import PROPOSAL_ID

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from compatgate.client import Client
    from compatgate.documents.sources import Source

_EXAMPLES = """\
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
    parser.epilog = _EXAMPLES
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
    """Print the backtest of a change.

    Returns:
        0: nothing is newly denied; 1: something is; 3: something is newly unknown or undecided.

    Raises:
        BadInput: no change is named, a name is malformed, or a proposal and files are named.
        ManyProblems: every mistake in the files.
        NotFound: the proposal or the document to delete does not exist.
    """
    if args.proposal and (args.files or args.delete):
        raise BadInput(
            "cannot be combined with FILE or --delete", field="--proposal", value=args.proposal
        )
    if not args.proposal and not args.files and not args.delete:
        hint = "matrix backtest FILE..., --delete Entry/NAME, or --proposal ID"
        raise BadInput("names no change", field="FILE", hint=hint)
    if number := args.proposal or _find_proposal_id(args):
        found = _ask_proposal(gate, number, args.days)
    else:
        deleted = [read_document_name(text) for text in args.delete]
        bounds = {"days": args.days, "questions": args.questions}
        found = ask_backtest(gate, read_paths(args.files), deleted, **bounds)
    print_backtest(found, args.format)
    return formats.exit_status(found)


def _find_proposal_id(args: argparse.Namespace) -> str | None:
    """Return the proposal that is named where files could be; None: there are files."""
    if len(args.files) == 1 and not args.delete and PROPOSAL_ID.fullmatch(args.files[0]):
        return str(args.files[0])
    return None


def _ask_proposal(gate: Client, number: str, days: int) -> Body:
    found: Body = ask(gate, Operations.backtest_proposal, number, days=days)["backtest"]
    return found


def ask_backtest(
    gate: Client, sources: Sequence[Source], deleted: Sequence[Body] = (), **bounds: Any
) -> Body:
    """Return the backtest of files and deletions.

    Args:
        gate: to ask.
        sources: the files.
        deleted: ``{"kind": ..., "name": ...}`` each.
        bounds: ``days`` and ``questions``.

    Raises:
        ManyProblems: every mistake in the files, with file and line.
        NotFound: the document to delete does not exist.
    """
    from compatgate.service.matrix.cli_files import join_files

    body: Body = {"delete": list(deleted), **bounds}
    if not sources:
        return ask(gate, Operations.backtest, body)
    whole = join_files(sources)
    try:
        return ask(gate, Operations.backtest, {**body, "yaml": whole.text, "file": whole.file})
    except ManyProblems as error:
        raise whole.locate_errors(error) from None


def print_backtest(found: Body, form: str) -> None:
    """Print a backtest as text, JSON or Markdown."""
    if form == "json":
        print_json(found)
    elif form == "markdown":
        print(formats.render_markdown(found))
    else:
        colour = wants_colour(sys.stdout)
        print(formats.render_text(found, width_of(sys.stdout), colour=colour))


def read_document_name(text: str) -> Body:
    """Read ``Entry/NAME``.

    Raises:
        BadInput: it is not a kind and a name.
    """
    from compatgate.documents.specs import KINDS

    kind, slash, name = text.partition("/")
    kinds = {known.lower(): known for known in KINDS}
    if not slash or not name or kind.lower() not in kinds:
        hint = f"like Entry/torch24-cu124; kinds: {', '.join(KINDS)}"
        raise BadInput("is not of the form KIND/NAME", field="--delete", value=text, hint=hint)
    return {"kind": kinds[kind.lower()], "name": name}
