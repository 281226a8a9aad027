"""``compatgate canary run``: run a suite, wait for what comes of it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from compatgate.cli.gate import add_place, ask, gate_of

if TYPE_CHECKING:
    import argparse

_EPILOG = """\
One run is queued for each SKU and driver of the target's pools. Without --stack and --image the
workloads' own images are run, and what they bring is measured; this project's programs bring none.
exit status: 0 passed, 1 failed, 2 bad input, 3 inconclusive, error, timeout or cancelled
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action."""
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("--suite", required=True, metavar="S", help="suite to run")
    add("--target", metavar="T", help="target of the run; optional with --host")
    add("--pool", metavar="P", help="only this pool of the target (default: each SKU and driver)")
    add("--stack", metavar="LIST", help="stack under test, for example cuda=12.4,torch=2.4.1+cu124")
    add("--image", metavar="REF", help="image under test")
    add("--entry", metavar="NAME", help="entry of the matrix under test")
    add("--host", metavar="H", help="staging host (default: any suitable host)")
    add(
        "--priority",
        type=int,
        default=0,
        metavar="N",
        help="priority; higher runs first (default: 0)",
    )
    waiting = parser.add_mutually_exclusive_group()
    waiting.add_argument(
        "--wait", action="store_true", default=True, help="wait for the end (default)"
    )
    waiting.add_argument(
        "--detach", dest="wait", action="store_false", help="queue the run and exit with 0"
    )
    add_place(parser)
    add("--format", choices=("text", "json"), default="text", help="output format (default: text)")


def run(args: argparse.Namespace) -> int:
    """Queue the runs and wait for their ends.

    Raises:
        BadInput: names the option; or no staging host could ever run it.
        NotFound: there is no such suite, target, pool, entry or host.
    """
    from compatgate.cli.canary.waiting import exit_status, wait
    from compatgate.cli.canary.words import print_runs

    with gate_of(args) as gate:
        from compatgate.client.operations import Operations

        made = ask(gate, Operations.submit_runs, **_body(args))["runs"]
        if args.wait:
            ids = [run["id"] for run in made]
            try:
                made = wait(lambda run: ask(gate, Operations.show_run, run), ids)
            except KeyboardInterrupt:
                print(f"\nstill there: compatgate canary cancel {' '.join(ids)}", file=sys.stderr)
                raise
    print_runs(made, args.format)
    return exit_status(made) if args.wait else 0


def _body(args: argparse.Namespace) -> dict[str, Any]:
    names = ("suite", "target", "pool", "image", "entry", "host", "priority")
    body = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    if args.stack is not None:
        from compatgate.core.stack import parse_stack_text

        body["stack"] = parse_stack_text(args.stack)
    return body
