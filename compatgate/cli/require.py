"""Run ``compatgate require``: tell whether NVIDIA's container runtime would start an image."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator

import msgspec

from compatgate.core.requirements import Question, check
from compatgate.core.requirements.model import Properties, RequirementAnswer
from compatgate.errors import BadInput, CompatgateError, explain_form
from compatgate.kit.cli.options import FORMAT
from compatgate.kit.cli.output import open_input
from compatgate.kit.cli.usage import command

_PROPERTIES = ("cuda", "driver", "arch", "brand")


@command(
    """\
[REQUIREMENT ...]  value of an NVIDIA_REQUIRE_* variable, such as "cuda>=12.4
                   brand=tesla,driver>=470"; all of them must hold
--cuda VALUE       CUDA version that the host's driver reports, such as 12.2 (default: unknown)
--driver VALUE     the host's driver version, such as 535.104.05 (default: unknown)
--arch VALUE       the GPU's compute capability, such as 8.0 (default: unknown)
--brand VALUE      the GPU's NVML brand, such as tesla (default: unknown)
--impl {go,c}      parser: the Go toolkit's (default) or the C library's
""",
    FORMAT,
    """\
--batch FILE  read JSON lines from a file ("-": standard input) such as {"require": ["cuda>=12.4"],
              "impl": "go", "cuda": "12.2"}, and print one JSON line each
""",
    epilog="""\
examples:
  compatgate require "cuda>=12.4 brand=tesla,driver>=470" --cuda 12.2 --driver 535.104.05
  compatgate require --batch questions.jsonl

exit status: 0 satisfied, 1 not satisfied, 2 malformed
""",
    impl={"default": "go"},
)
def run(args: argparse.Namespace) -> int:
    """Print the answer; return 0 satisfied, 1 not; for a batch 0, or 2 if a line is malformed."""
    if args.batch is not None:
        return _run_batch(args)
    if not args.requirement:
        what = "no requirement to check"
        hint = 'give a requirement such as "cuda>=12.4", or --batch FILE'
        raise BadInput(what, field="requirement", hint=hint)

    host = Properties(args.cuda, args.driver, args.arch, args.brand)
    answer = check(args.requirement, host, args.impl)
    if args.format == "json":
        print(json.dumps(_result(answer)))
    else:
        print(f"{'satisfied' if answer.satisfied else 'not satisfied'}: {answer.reason}")
    return 0 if answer.satisfied else 1


def _run_batch(args: argparse.Namespace) -> int:
    stated = [f"--{name}" for name in _PROPERTIES if getattr(args, name) is not None]
    if args.requirement or stated:
        what = (
            "cannot be combined with options for requirements and host: each line of the batch has"
            " its own"
        )
        hint = f"omit {', '.join([*stated, *(['requirements'] if args.requirement else [])])}"
        raise BadInput(what, field="--batch", hint=hint)
    failed = False
    decode = msgspec.json.Decoder(Question).decode
    for line in _lines(args.batch):
        try:
            result = _result(decode(line).answer(args.impl))
        except CompatgateError as error:
            result = {"error": error.detail}
        except ValueError as error:  # errors of msgspec, and of invalid UTF-8
            result = {"error": f"malformed line: {explain_form(error, 'it')}"}
        failed = failed or "error" in result
        print(json.dumps(result), flush=args.batch == "-")
    return 2 if failed else 0


def _lines(path: str) -> Iterator[bytes]:
    # a generator, so that an error of the output is not taken for one of the input
    with open_input(path, "--batch") as file:
        yield from file


def _result(answer: RequirementAnswer) -> dict[str, object]:
    return {"satisfied": answer.satisfied, "reason": answer.reason}
