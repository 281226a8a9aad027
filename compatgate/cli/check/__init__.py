"""``compatgate check``: may this stack run there?"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from compatgate.cli.check.options import add_arguments
from compatgate.core.verdict import EXIT_ALLOWED, EXIT_NO_DECISION
from compatgate.errors import BadInput, Unavailable

if TYPE_CHECKING:
    import argparse

HELP = "decide whether a stack may run on a target or pool"

__all__ = ["HELP", "add_arguments", "run"]


def run(args: argparse.Namespace) -> int:
    """Answer the question, or a file of them.

    Returns:
        0 allowed, 1 denied, 2 bad input, 3 no decision; ``--fail-open`` turns 3 into 0.

    Raises:
        BadInput: an option, a file or a value in it is wrong.
        NotFound: there is no such target.
    """
    _complete(args)
    try:
        if args.batch is not None:
            from compatgate.cli.check.batch import run_batch

            status = run_batch(args)
        else:
            status = _one(args)
    except Unavailable as error:
        if not args.fail_open:
            raise
        print(f"error: {error.detail}", file=sys.stderr)
        status = EXIT_NO_DECISION
    if status == EXIT_NO_DECISION and args.fail_open:
        _warn_open()
        return EXIT_ALLOWED
    return status


def _one(args: argparse.Namespace) -> int:
    from compatgate.cli.check.deciders import decider_for
    from compatgate.cli.check.question import read_question
    from compatgate.cli.formats import View, render
    from compatgate.cli.terminal import printable, wants_colour, width_of
    from compatgate.core.verdict import exit_code

    decider = decider_for(args)
    try:
        question = read_question(args, decider.facts, lambda: _target_pools(args))
        for note in question.notes:
            print(f"note: {printable(note)}", file=sys.stderr)
        verdict = decider.decide(question.bodies)
    finally:
        decider.close()
    view = View(width=width_of(sys.stdout), colour=wants_colour(sys.stdout))
    print(render(args.format, verdict, view))
    return exit_code(verdict["verdict"], allowed=verdict["allowed"])


def _target_pools(args: argparse.Namespace) -> list[dict[str, Any]]:
    from compatgate.cli.target_pools import pools_of

    return pools_of(args)


def _complete(args: argparse.Namespace) -> None:
    """Take what was not given from the environment, and refuse what contradicts itself."""
    args.token = args.token or os.environ.get("COMPATGATE_TOKEN") or None
    given = [f"--{name}" for name in ("server", "bundle", "database") if getattr(args, name)]
    if len(given) > 1:
        raise BadInput(f"{' and '.join(given)} exclude each other", hint="name one place to ask")
    if args.server and args.facts:
        raise BadInput(
            "a server decides with its own facts", field="--facts", hint="leave out --server"
        )
    if args.bundle and args.facts:
        raise BadInput("a bundle brings its own facts", field="--facts", hint="leave out --bundle")
    if not given and not args.facts:
        args.target_server = os.environ.get("COMPATGATE_SERVER") or None
    else:
        args.target_server = args.server


def _warn_open() -> None:
    from compatgate.cli.terminal import paint, wants_colour

    text = (
        "WARNING: NO DECISION WAS MADE; --fail-open lets it pass UNCHECKED (exit status 0 "
        "instead of 3)"
    )
    print(paint(text, "bold", "red", colour=wants_colour(sys.stderr)), file=sys.stderr)
