"""Run ``compatgate check``: decide whether a stack may run on a target or pool."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import TYPE_CHECKING

from compatgate.core.rule import (
    EXIT_ALLOWED,
    EXIT_BAD_INPUT,
    EXIT_NO_DECISION,
    exit_code,
    worst_exit,
)
from compatgate.errors import BadInput, CompatgateError, Unavailable, quote_error
from compatgate.formats.reports import FORMATS
from compatgate.kit.cli.parser import add_overlays, server_of
from compatgate.kit.cli.usage import Part, command, titled

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from compatgate.check.deciders import Decider
    from compatgate.formats.reports import Answer, Report

PLACES = """\
--target NAME       target of the blessed matrix
--pool driver=V,gpu=G[,os=O] ...
    pool description (gpu: product or compute capability; os: linux, windows or wsl; parts of its
    nodes, like kernel-modules=open); overrides or selects the pools of --probe, --nvidia-smi or
    --node-labels
--nvidia-smi FILE   GPUs and driver from the output of nvidia-smi ("-": standard input)
--node-labels FILE  pools from Kubernetes node labels (output of kubectl get nodes -o json) ("-":
                    standard input)
--probe FILE        GPUs, driver and stack from the output of compatgate probe, or the stack from
                    compatgate inspect --format json ("-": standard input)
"""
STACK = """\
--stack NAME=VERSION,... ...
    components; GPU code as arch=sm_80+sm_90+compute_90; GPU requirements as needs=fp8+60GiB; may be
    repeated
--set NAME=VALUE,... ...  change a component or a property of the pool for this question; an empty
                          value removes a component; may be repeated
"""
BUILD = """\
--build-arg NAME=VALUE ...  value of an ARG of the Dockerfile; may be repeated
--build-stage NAME  stage of the Dockerfile (default: last)
"""
WHEELS = """\
--read-wheels    measure wheels of GPU packages without a record, from the lockfile's index or that
                 of pip and uv; measurements are cached permanently
--cached-wheels  like --read-wheels, but use only earlier measurements; ask no index
"""
_FILES = f"""\
--image REF
    stack in an image, read from its registry without pulling it, or from a file (oci:DIR[:REF],
    oci-archive:FILE, docker-archive:FILE, a tar of docker save or of a root filesystem, .sif,
    .sqsh); wins over stated versions
--dockerfile FILE
    stack of the image that a Dockerfile begins from, and of pinned packages that it installs;
    content from RUN, COPY and ADD is unknown, never a pass
{BUILD}--lock FILE ...
    stack in a lockfile (requirements.txt, uv.lock, poetry.lock, pdm.lock, pylock.toml,
    pixi.lock, conda's; "-": standard input); unpinned versions are unknown, never a
    pass; may be repeated, one question per lockfile
[locks: LOCKFILE ...]  lockfile, like --lock; for commit hooks
--skip-unrelated    skip lockfiles without GPU components, with a note, instead of exiting with 3
--sbom FILE         stack from an SBOM: CycloneDX or SPDX 2.x in JSON (extra: sbom)
"""
_DECIDER = """\
--server URL    URL of the gate, for targets (default: $COMPATGATE_SERVER)
--token TOKEN   access token (default: $COMPATGATE_TOKEN)
--timeout SECONDS = 10  timeout of the gate in seconds
--bundle FILE   decide from this bundle
--key FILE ...  use the bundle only if this key signed it (PEM or JSON Web Key Set); may be repeated
--max-stale DURATION
    make no decision if compatgate bundle pull last confirmed the bundle longer ago, for example 6h
--database URL  database with the target (default: $COMPATGATE_DATABASE)
"""
OUTPUT = f"""\
--format NAME[=FILE] ...
    output format (default: text), one of {", ".join(FORMATS)}; may name a file, may be repeated;
    github also writes the job summary and the step's outputs
--output FILE    output file for formats without a file (default: standard output)
--fail-open      exit with 0 instead of 3 without a decision, with a warning
"""


def decider(title: str, *more: Part) -> Part:
    """Return the options for the source of targets and facts."""
    return titled(title, _DECIDER, add_overlays, *more, timeout={"type": float})


_BY_FACTS = "decider (default: the facts; for --target the database)"
FACTS_DECIDER = decider(_BY_FACTS)


def read_format(text: str) -> str:
    """Check a value of ``--format``."""
    from argparse import ArgumentTypeError

    if text.partition("=")[0] not in FORMATS or text.endswith("="):
        raise ArgumentTypeError(f"'{text}' is not NAME or NAME=FILE of {', '.join(FORMATS)}")
    return text


@command(
    titled("target or pool", PLACES),
    titled("stack", STACK, _FILES, WHEELS),
    decider(
        _BY_FACTS,
        """\
--at REVISION|TIME  decide by an older matrix with today's facts: a revision, or a time such as
                    2026-11-03 (end of day) with the evidence and waivers of that time; not logged
""",
    ),
    titled(
        "output",
        OUTPUT,
        """\
--show-at FILE[:LINE]  where sarif, github and gitlab-codequality show findings outside of
                       lockfiles, such as the Dockerfile of --image
--batch FILE.jsonl     read request bodies of POST /api/v1/gate, one per line, from a file ("-":
                       standard input) and print one JSON verdict per line, in order
""",
        format={"type": read_format},
    ),
    epilog="""\
exit status:
  0  allowed      1  denied      2  bad input or usage      3  no decision

examples:
  a pool description; needs no server and no database
    compatgate check --pool driver=535.104.05,gpu=A100-SXM4-80GB \\
                     --stack torch=2.4.1+cu121,cudnn=9.1.0
  a target of the blessed matrix, in CI
    compatgate check --target prod-a100 --server https://gate.example --format github \\
                     --stack cuda=12.4,cudnn=9.1.0,arch=sm_80+compute_90
  the same target with a newer driver
    compatgate check --target prod-a100 --stack cuda=12.8 --set driver=570.124.06
  the verdict of an earlier day
    compatgate check --target prod-a100 --stack cuda=12.4,torch=2.4.1+cu124 --at 2026-11-03
  the GPUs of another host
    ssh node17 nvidia-smi -q | compatgate check --nvidia-smi - --stack cuda=12.4
  every kind of GPU node of a cluster
    kubectl get nodes -o json | compatgate check --node-labels - --stack cuda=12.4
  a lockfile, with reports for a code host and for people
    compatgate check --target prod-a100 --lock uv.lock --format github \\
                     --format sarif=compatgate.sarif --format markdown=comment.md
  an image that is yet to be built, and one that was built to a file
    compatgate check --pool driver=580.95.05,gpu=L4 --dockerfile Dockerfile --build-arg CUDA=12.4.1
    compatgate check --pool driver=580.95.05,gpu=L4 --image oci-archive:app.tar
  a lockfile with packages that have no record yet
    compatgate check --pool driver=580.95.05,gpu=L4 --lock uv.lock --read-wheels
  many questions, one JSON line each
    compatgate check --batch questions.jsonl > verdicts.jsonl
""",
)
def run(args: argparse.Namespace) -> int:
    """Answer one question, one per lockfile, or a batch; return the worst exit status."""
    _complete(args)
    return settle(args, _answer_all)


def settle(args: argparse.Namespace, answer: Callable[[argparse.Namespace], int]) -> int:
    """Return the exit status of a command with ``--fail-open``, and report errors to GitHub."""
    try:
        status = answer(args)
    except CompatgateError as error:
        open_anyway = args.fail_open and error.exit_code == EXIT_NO_DECISION
        if "github" in args.format:
            from compatgate.formats.ci import publish_error

            publish_error(error, let_pass=open_anyway)
        if not open_anyway:
            raise
        print(f"error: {error.detail}", file=sys.stderr)
        status = EXIT_NO_DECISION
    if status == EXIT_NO_DECISION and args.fail_open:
        from compatgate.kit.cli.output import paint, wants_colour

        text = (
            "WARNING: NO DECISION WAS MADE; --fail-open lets the stack pass UNCHECKED"
            " (exit status 0 instead of 3)"
        )
        print(paint(text, "bold", "red", colour=wants_colour(sys.stderr)), file=sys.stderr)
        return EXIT_ALLOWED
    return status


def _answer_all(args: argparse.Namespace) -> int:
    if args.batch is not None:
        return _run_batch(args)
    from compatgate.check.deciders import choose_decider
    from compatgate.formats import reports as forms

    files = (args.sbom, args.dockerfile, args.probe, args.nvidia_smi, args.node_labels, args.bundle)
    reports = forms.open_reports(args.format, args.output, (*args.lock, *files))
    with closing(choose_decider(args)) as decider:
        answers = _answers(args, decider)
    return publish_answers(args, reports, answers)


def publish_answers(
    args: argparse.Namespace, reports: Sequence[Report], answers: Sequence[Answer]
) -> int:
    """Write every report; return the exit status of the worst answer."""
    from compatgate.formats.reports import write_reports

    write_reports(reports, answers)
    if "github" in args.format:
        from compatgate.formats.ci import publish

        publish(answers)
    verdicts = [answer.verdict for answer in answers]
    return worst_exit(*(exit_code(v["verdict"], allowed=v["allowed"]) for v in verdicts))


def _answers(args: argparse.Namespace, decider: Decider) -> list[Answer]:
    from compatgate.check.question import read_questions
    from compatgate.formats.reports import Answer, Place
    from compatgate.kit.cli.output import strip_controls

    asked = read_questions(args, decider.facts, lambda: decider.pools(args.target))
    for note in asked.notes:
        print(f"note: {strip_controls(note)}", file=sys.stderr)
    read = [path for path in (*args.lock, args.sbom, args.dockerfile) if path]
    fallback = None
    if args.show_at:
        from compatgate.check.stack_sources import stated_place

        fallback = stated_place(args.show_at)
    answers = []
    for question in asked.questions:
        verdict = decider.decide(question.bodies, question.records)
        first = question.file or next(iter(read), "")
        at = fallback or (Place(first) if first else None)
        file = question.file.encode("utf-8", "replace").decode()  # names may not be valid text
        answers.append(Answer(verdict, file, question.places, at, decider.link(verdict)))
    return answers


def _complete(args: argparse.Namespace) -> None:
    """Read missing options from the environment, and refuse contradictions."""
    args.lock = [*args.lock, *args.locks]
    if [*args.lock, args.sbom].count("-") > 1:
        raise BadInput("standard input can be read only once", field="--lock")
    complete_decider(args)
    if (args.read_wheels or args.cached_wheels) and (
        args.server or (args.target and args.target_server and not args.bundle)
    ):
        what = "cannot be combined with --server: the gate uses its own records"
        hint = "start the server with serve --index, or leave out --server"
        raise BadInput(what, field="--read-wheels", hint=hint)
    args.moment = None
    if args.at is not None:
        if args.bundle or not args.target:
            what = "a bundle holds one matrix" if args.bundle else "facts have no history"
            hint = "use --at with a --target and a server or a database"
            raise BadInput(what, field="--at", value=args.at, hint=hint)
        from compatgate.kit.cli.options import revision_or_time

        args.moment = revision_or_time(args.at, "--at")


def complete_decider(args: argparse.Namespace) -> None:
    """Read the server from the environment, and refuse contradictions of the decider's options."""
    server = server_of(args)
    if args.server and args.facts:
        what = "cannot be combined with --server: the gate uses its own facts"
        raise BadInput(what, field="--facts", hint="omit --server")
    for option, value in (("--key", args.key), ("--max-stale", args.max_stale)):
        if value and not args.bundle:
            raise BadInput("needs --bundle", field=option, hint="add --bundle FILE")
    if args.bundle and args.facts:
        what = "cannot be combined with --bundle: a bundle contains its own facts"
        raise BadInput(what, field="--facts", hint="omit --bundle")
    args.target_server = None if args.facts else server


def _run_batch(args: argparse.Namespace) -> int:
    """Answer line by line; return 2 if one is malformed, else the exit status of the worst."""
    import msgspec

    from compatgate.check.deciders import choose_decider

    names = (
        *("target", "pool", "nvidia_smi", "node_labels", "probe"),
        *("stack", "set", "image", "lock", "sbom", "show_at"),
        *("read_wheels", "cached_wheels"),
    )
    stated = [f"--{name.replace('_', '-')}" for name in names if getattr(args, name)]
    if stated:
        what = "cannot be combined with options for the question: each line has its own"
        raise BadInput(what, field="--batch", hint=f"omit {', '.join(stated)}")
    if args.output or any(form not in ("text", "json") for form in args.format):
        what = "cannot be combined with --batch, which prints JSON lines on standard output"
        option = "--output" if args.output else "--format"
        raise BadInput(what, field=option, value=args.output or args.format)
    decode, encode = msgspec.json.Decoder().decode, msgspec.json.Encoder().encode
    worst = EXIT_ALLOWED
    write = sys.stdout.write
    with closing(choose_decider(args)) as decider:
        for number, line in _lines(args.batch):
            status, answer = _answer_line(line, number, decider, decode)
            worst = worst_exit(worst, status)
            write(encode(answer).decode() + "\n")
            if args.batch == "-":
                sys.stdout.flush()
    return worst


def _answer_line(
    line: bytes, number: int, decider: Decider, decode: Any
) -> tuple[int, dict[str, Any]]:
    from compatgate.strict_json import DECODE_ERRORS

    try:
        try:
            body = decode(line)
        except DECODE_ERRORS as error:
            hint = 'one JSON object per line, like {"pool": {...}, "stack": {...}}'
            raise BadInput(f"the line is not JSON: {quote_error(error)}", hint=hint) from None
        if not isinstance(body, dict):
            raise BadInput("must be a JSON object", value=body)
        verdict = decider.decide([body])
    except Unavailable:
        raise
    except CompatgateError as error:
        problem = {  # in the form of the REST API (RFC 9457)
            "type": f"https://compatgate.dev/problems/{error.slug}",
            "title": error.slug.replace("-", " ").capitalize(),
            "status": error.status,
            "detail": error.detail,
            "field": error.field,
            "hint": error.hint,
        }
        return EXIT_BAD_INPUT, {"error": problem, "line": number}
    return exit_code(verdict["verdict"], allowed=verdict["allowed"]), verdict


def _lines(path: str) -> Iterator[tuple[int, bytes]]:
    """Yield numbered lines, without blank lines at the end."""
    from compatgate.kit.cli.output import open_input

    blank: list[tuple[int, bytes]] = []
    with open_input(path, "--batch") as file:
        for number, line in enumerate(file, 1):
            blank.append((number, line))
            if line.strip():
                yield from blank
                blank.clear()
