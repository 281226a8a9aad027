"""``compatgate check``: may this stack run there?"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from compatgate.cli.check.options import add_arguments
from compatgate.cli.parser import server_of
from compatgate.core.verdict import EXIT_ALLOWED, EXIT_NO_DECISION, exit_code, worst_exit
from compatgate.errors import BadInput, CompatgateError

if TYPE_CHECKING:
    import argparse
    from datetime import datetime

    from compatgate.cli.check.deciders import Decider
    from compatgate.cli.formats import Answer

__all__ = ["add_arguments", "run"]


def run(args: argparse.Namespace) -> int:
    """Answer the question, one for each lockfile, or a file of them.

    Returns:
        0 allowed, 1 denied, 2 bad input, 3 no decision; of several the worst. ``--fail-open``
        turns 3 into 0.

    Raises:
        BadInput: an option, a file or a value in it is wrong.
        NotFound: there is no such target.
    """
    _complete(args)
    try:
        status = _asked(args)
    except CompatgateError as error:
        open_anyway = args.fail_open and error.exit_code == EXIT_NO_DECISION
        if "github" in args.format:
            from compatgate.cli.check.github import publish_error

            publish_error(error, let_pass=open_anyway)
        if not open_anyway:
            raise
        print(f"error: {error.detail}", file=sys.stderr)
        status = EXIT_NO_DECISION
    if status == EXIT_NO_DECISION and args.fail_open:
        _warn_open()
        return EXIT_ALLOWED
    return status


def _asked(args: argparse.Namespace) -> int:
    if args.batch is not None:
        from compatgate.cli.check.batch import run_batch

        return run_batch(args)
    from compatgate.cli.check import reports as forms
    from compatgate.cli.check.deciders import decider_for

    reports = forms.read_reports(args.format, args.output)
    files = (args.sbom, args.probe, args.nvidia_smi, args.node_labels, args.bundle)
    forms.refuse_inputs(reports, (*args.lock, *files))
    forms.remove_old(reports)
    decider = decider_for(args)
    try:
        answers = _answers(args, decider)
    finally:
        decider.close()
    forms.write_reports(reports, answers)
    if "github" in args.format:
        from compatgate.cli.check.github import publish

        publish(answers)
    return worst_exit(
        *(exit_code(a.verdict["verdict"], allowed=a.verdict["allowed"]) for a in answers)
    )


def _answers(args: argparse.Namespace, decider: Decider) -> list[Answer]:
    from compatgate.cli.check.question import read_questions
    from compatgate.cli.formats import Answer, Place
    from compatgate.cli.terminal import printable

    asked = read_questions(args, decider.facts, lambda: _target_pools(args))
    for note in asked.notes:
        print(f"note: {printable(note)}", file=sys.stderr)
    read = [path for path in (*args.lock, args.sbom) if path]
    fallback = None
    if args.show_at:
        from compatgate.cli.check.places import stated_place

        fallback = stated_place(args.show_at)
    answers = []
    for question in asked.questions:
        verdict = decider.decide(question.bodies, question.records)
        first = question.file or next(iter(read), "")
        at = fallback or (Place(first) if first else None)
        file = question.file.encode("utf-8", "replace").decode()  # a name need not be text
        answers.append(Answer(verdict, file, question.places, at, decider.link(verdict)))
    return answers


def _target_pools(args: argparse.Namespace) -> list[dict[str, Any]]:
    from compatgate.cli.target_pools import pools_of

    return pools_of(args)


def _complete(args: argparse.Namespace) -> None:
    """Take what was not given from the environment, and refuse what contradicts itself."""
    args.lock = [*args.lock, *args.locks]
    if [*args.lock, args.sbom].count("-") > 1:
        raise BadInput("standard input can be read once", field="--lock")
    server = server_of(args)
    if args.server and args.facts:
        raise BadInput(
            "a server decides with its own facts", field="--facts", hint="leave out --server"
        )
    if args.bundle and args.facts:
        raise BadInput("a bundle brings its own facts", field="--facts", hint="leave out --bundle")
    args.target_server = None if args.facts else server
    if (args.read_wheels or args.cached_wheels) and (
        args.server or (args.target and args.target_server and not args.bundle)
    ):
        hint = "serve --index lets a server measure; or leave out the server"
        raise BadInput("a server judges by its own records", field="--read-wheels", hint=hint)
    args.moment = _moment(args)


def _moment(args: argparse.Namespace) -> int | datetime | None:
    """Whose matrix is asked, where it is not the present one.

    Raises:
        BadInput: ``--at`` is neither a revision nor a time, or nobody has an older matrix.
    """
    if args.at is None:
        return None
    if args.bundle or not args.target:
        what = "a bundle holds one matrix" if args.bundle else "facts are not kept by day"
        hint = "ask a server or a database about a --target"
        raise BadInput(what, field="--at", value=args.at, hint=hint)
    from compatgate.cli.database import revision_or_time

    return revision_or_time(args.at, "--at")


def _warn_open() -> None:
    from compatgate.cli.terminal import paint, wants_colour

    text = (
        "WARNING: NO DECISION WAS MADE; --fail-open lets it pass UNCHECKED (exit status 0 "
        "instead of 3)"
    )
    print(paint(text, "bold", "red", colour=wants_colour(sys.stderr)), file=sys.stderr)
