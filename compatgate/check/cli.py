"""Run ``compatgate check``: may this stack run there?"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from compatgate.check.reports import FORMATS
from compatgate.core.verdict import EXIT_ALLOWED, EXIT_NO_DECISION, exit_code, worst_exit
from compatgate.errors import BadInput, CompatgateError
from compatgate.kit.cli.parser import add_overlays, add_server, server_of

if TYPE_CHECKING:
    import argparse
    from datetime import datetime

    from compatgate.check.deciders import Decider
    from compatgate.check.reports import Answer

_EXAMPLES = """\
exit status:
  0  allowed      1  denied      2  bad input or usage      3  no decision

examples:
  a described pool; needs no server and no database
    compatgate check --pool driver=535.104.05,gpu=A100-SXM4-80GB \\
                     --stack torch=2.4.1+cu121,cudnn=9.1.0
  a target of the blessed matrix, in CI
    compatgate check --target prod-a100 --server https://gate.example --format github \\
                     --stack cuda=12.4,cudnn=9.1.0,arch=sm_80+compute_90
  what if the driver were newer?
    compatgate check --target prod-a100 --stack cuda=12.8 --set driver=570.124.06
  what would it have said on the 3rd?
    compatgate check --target prod-a100 --stack cuda=12.4,torch=2.4.1+cu124 --at 2026-11-03
  the GPUs of another host
    ssh node17 nvidia-smi -q | compatgate check --nvidia-smi - --stack cuda=12.4
  every kind of GPU node of a cluster
    kubectl get nodes -o json | compatgate check --node-labels - --stack cuda=12.4
  a lockfile, with reports for a code host and for people
    compatgate check --target prod-a100 --lock uv.lock --format github \\
                     --format sarif=compatgate.sarif --format markdown=comment.md
  a lockfile whose newest packages have no record yet
    compatgate check --pool driver=580.95.05,gpu=L4 --lock uv.lock --read-wheels
  many questions, one JSON line each
    compatgate check --batch questions.jsonl > verdicts.jsonl
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command: where, what, who decides, and the form of the answer."""
    parser.epilog = _EXAMPLES
    add_where(parser.add_argument_group("where it is to run"))
    what = parser.add_argument_group("what is to run")
    _what(what)
    _files(what)
    who = parser.add_argument_group("who decides (default: the facts; for --target the database)")
    add_who(who)
    who.add_argument(
        "--at",
        metavar="REVISION|TIME",
        help="what would have been said: the matrix of that revision, or the matrix, evidence"
        " and waivers of that time, such as 2026-11-03 (its end), by today's facts; not logged",
    )
    answer = parser.add_argument_group("the answer")
    answer.add_argument(
        "--format",
        metavar="NAME[=FILE]",
        action="append",
        default=[],
        type=_form,
        help=f"{', '.join(FORMATS)}; with a file it goes there; may be repeated (text)."
        " github also writes the job summary and the step's outputs",
    )
    answer.add_argument(
        "--output",
        metavar="FILE",
        help="output file for formats without a file (default: standard output)",
    )
    answer.add_argument(
        "--show-at",
        metavar="FILE[:LINE]",
        help="where sarif, github and gitlab-codequality show what no lockfile says, such as the"
        " Dockerfile of --image",
    )
    answer.add_argument(
        "--fail-open",
        action="store_true",
        help="exit with 0 instead of 3 if there is no decision, with a warning",
    )
    answer.add_argument(
        "--batch",
        metavar="FILE.jsonl",
        help='answer a file ("-": standard input) of request bodies as in POST /api/v1/gate, one'
        " JSON verdict a line, in order",
    )


def _form(text: str) -> str:
    """Return the type of ``--format``."""
    from argparse import ArgumentTypeError

    if text.partition("=")[0] not in FORMATS or text.endswith("="):
        raise ArgumentTypeError(f"'{text}' is not NAME or NAME=FILE of {', '.join(FORMATS)}")
    return text


def add_where(group: argparse._ArgumentGroup) -> None:
    """The options that say where something is to run."""
    group.add_argument("--target", metavar="NAME", help="target of the blessed matrix")
    group.add_argument(
        "--pool",
        metavar="driver=V,gpu=G[,os=O]",
        action="append",
        default=[],
        help="a described pool (gpu: product or compute capability; os: linux, windows or wsl);"
        " with --probe, --nvidia-smi or --node-labels it overrides or chooses what they say",
    )
    group.add_argument(
        "--nvidia-smi",
        metavar="FILE",
        help='GPUs and driver from what nvidia-smi printed ("-": standard input)',
    )
    group.add_argument(
        "--node-labels",
        metavar="FILE",
        help="pools from Kubernetes node labels (output of kubectl get nodes -o json)"
        ' ("-": standard input)',
    )
    group.add_argument(
        "--probe",
        metavar="FILE",
        help="GPUs, driver and stack from what compatgate probe wrote, or GPUs and driver from an"
        ' AICR snapshot ("-": standard input)',
    )


def _what(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--stack",
        metavar="NAME=VERSION,...",
        action="append",
        default=[],
        help="components, and GPU code as arch=sm_80+sm_90+compute_90; may be repeated",
    )
    group.add_argument(
        "--set",
        metavar="NAME=VALUE,...",
        action="append",
        default=[],
        help="what if: a component or a property of the pool set to another value; an empty value"
        " removes a component; may be repeated",
    )


def _files(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--image",
        metavar="REF",
        help="the stack in an image, read from its registry without pulling it; what it shows wins"
        " over what is stated",
    )
    group.add_argument(
        "--lock",
        metavar="FILE",
        action="append",
        default=[],
        help="the stack in a lockfile (requirements.txt, uv.lock, poetry.lock, pdm.lock,"
        ' pylock.toml, conda\'s; "-": standard input); what it leaves open is unknown, never a'
        " pass; may be repeated, and each is a question of its own",
    )
    group.add_argument(
        "locks", metavar="LOCKFILE", nargs="*", help="lockfile, as commit hooks pass it"
    )
    group.add_argument(
        "--skip-unrelated",
        action="store_true",
        help="pass over lockfiles without any component of a GPU stack, and say so, instead of"
        " exiting with 3",
    )
    group.add_argument(
        "--sbom",
        metavar="FILE",
        help="stack from an SBOM: CycloneDX or SPDX (extra: compatgate[sbom])",
    )
    add_wheels(group)


def add_wheels(group: argparse._ActionsContainer) -> None:
    """Add the options that say whether wheels without a record are measured."""
    group.add_argument(
        "--read-wheels",
        action="store_true",
        help="measure the wheels of GPU packages without a record, from the index that the lockfile"
        " names or the one that pip and uv are set up with; what is measured is kept for ever",
    )
    group.add_argument(
        "--cached-wheels",
        action="store_true",
        help="like --read-wheels, but use only earlier measurements; ask no index",
    )


def add_who(group: argparse._ArgumentGroup) -> None:
    """The options that say who knows targets and facts."""
    add_server(group, what="targets", timeout_s=10)
    group.add_argument("--bundle", metavar="FILE", help="use a bundle")
    group.add_argument(
        "--database", metavar="URL", help="use this database (default: $COMPATGATE_DATABASE)"
    )
    add_overlays(group)


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
            from compatgate.check.formats.ci import publish_error

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
        from compatgate.check.batch import run_batch

        return run_batch(args)
    from compatgate.check import reports as forms
    from compatgate.check.deciders import decider_for

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
        from compatgate.check.formats.ci import publish

        publish(answers)
    return worst_exit(
        *(exit_code(a.verdict["verdict"], allowed=a.verdict["allowed"]) for a in answers)
    )


def _answers(args: argparse.Namespace, decider: Decider) -> list[Answer]:
    from compatgate.check.question import read_questions
    from compatgate.check.reports import Answer, Place
    from compatgate.kit.cli.terminal import printable

    asked = read_questions(args, decider.facts, lambda: _target_pools(args))
    for note in asked.notes:
        print(f"note: {printable(note)}", file=sys.stderr)
    read = [path for path in (*args.lock, args.sbom) if path]
    fallback = None
    if args.show_at:
        from compatgate.check.stack_sources import stated_place

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
    from compatgate.check.deciders import pools_of

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
    from compatgate.kit.cli.options import revision_or_time

    return revision_or_time(args.at, "--at")


def _warn_open() -> None:
    from compatgate.kit.cli.terminal import paint, wants_colour

    text = (
        "WARNING: NO DECISION WAS MADE; --fail-open lets it pass UNCHECKED (exit status 0 "
        "instead of 3)"
    )
    print(paint(text, "bold", "red", colour=wants_colour(sys.stderr)), file=sys.stderr)
