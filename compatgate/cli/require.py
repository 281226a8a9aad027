"""Run ``compatgate require``: tell whether NVIDIA's container runtime would start an image."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from compatgate.errors import BadInput, CompatgateError, explain_form
from compatgate.kit.cli.options import add_format
from compatgate.kit.cli.output import open_input

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator

    from compatgate.core.requirements.model import Impl, RequirementAnswer

    _Result = dict[str, object]

_EXAMPLES = """\
examples:
  compatgate require "cuda>=12.4 brand=tesla,driver>=470" --cuda 12.2 --driver 535.104.05
  compatgate require --batch questions.jsonl

exit status: 0 satisfied, 1 not satisfied, 2 malformed
"""
_PROPERTIES = {
    "cuda": "CUDA version that the host's driver reports, such as 12.2",
    "driver": "the host's driver version, such as 535.104.05",
    "arch": "the GPU's compute capability, such as 8.0",
    "brand": "the GPU's NVML brand, such as tesla",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options: requirements and a host, or a file of both."""
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "requirement",
        nargs="*",
        metavar="REQUIREMENT",
        help='value of an NVIDIA_REQUIRE_* variable, such as "cuda>=12.4 brand=tesla,driver>=470";'
        " all of them must hold",
    )
    for name, help_text in _PROPERTIES.items():
        parser.add_argument(f"--{name}", metavar="VALUE", help=f"{help_text} (default: unknown)")
    parser.add_argument(
        "--impl",
        choices=("go", "c"),
        default="go",
        help="parser: the Go toolkit's (default) or the C library's",
    )
    add_format(parser)
    parser.add_argument(
        "--batch",
        metavar="FILE",
        help='read JSON lines from a file ("-": standard input) such as'
        ' {"require": ["cuda>=12.4"], "impl": "go", "cuda": "12.2"}, and print one JSON line each',
    )


def run(args: argparse.Namespace) -> int:
    """Print the answer; return 0 satisfied, 1 not; for a batch 0, or 2 if a line is malformed."""
    if args.batch is not None:
        return _run_batch(args)
    if not args.requirement:
        raise BadInput(
            "no requirement to check",
            field="requirement",
            hint='give a requirement such as "cuda>=12.4", or --batch FILE',
        )
    from compatgate.core.requirements import check
    from compatgate.core.requirements.model import Properties

    host = Properties(args.cuda, args.driver, args.arch, args.brand)
    answer = check(args.requirement, host, args.impl)
    if args.format == "json":
        print(json.dumps(_result(answer)))
    else:
        print(f"{'satisfied' if answer.satisfied else 'not satisfied'}: {answer.reason}")
    return 0 if answer.satisfied else 1


def _run_batch(args: argparse.Namespace) -> int:
    given = [f"--{name}" for name in _PROPERTIES if getattr(args, name) is not None]
    if args.requirement or given:
        what = ", ".join([*given, *(["requirements"] if args.requirement else [])])
        raise BadInput(
            "cannot be combined with options for requirements and host: each line of the batch has"
            " its own",
            field="--batch",
            hint=f"omit {what}",
        )
    failed = False
    for result in _answers(_lines(args.batch), args.impl):
        failed = failed or "error" in result
        print(json.dumps(result), flush=args.batch == "-")
    return 2 if failed else 0


def _lines(path: str) -> Iterator[bytes]:
    # a generator, so that an error of the output is not taken for one of the input
    with open_input(path, "--batch") as file:
        yield from file


def _answers(lines: Iterable[bytes], impl: Impl) -> Iterator[_Result]:
    """Yield one result per line, in order; a malformed line gives an error object."""
    import msgspec

    from compatgate.core.requirements import Question

    decode = msgspec.json.Decoder(Question).decode
    for line in lines:
        try:
            question = decode(line)
        except ValueError as error:  # errors of msgspec, and of invalid UTF-8
            yield {"error": f"malformed line: {explain_form(error, 'it')}"}
            continue
        try:
            yield _result(question.answer(impl))
        except CompatgateError as error:
            yield {"error": error.detail}


def _result(answer: RequirementAnswer) -> _Result:
    return {"satisfied": answer.satisfied, "reason": answer.reason}
