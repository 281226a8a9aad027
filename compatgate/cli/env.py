"""Run ``compatgate env`` and ``require``: variables of builds, and NVIDIA_REQUIRE_* of images."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import closing

import msgspec

from compatgate.catalog import load_facts
from compatgate.check.deciders import open_targets
from compatgate.check.question import name_pools, read_pool
from compatgate.core.build_environment import MEANINGS, build_environment
from compatgate.core.request import parse_pool
from compatgate.core.requirements import Question, check
from compatgate.core.requirements.model import Properties, RequirementAnswer
from compatgate.errors import BadInput, CompatgateError, explain_form
from compatgate.kit.cli.options import FORMAT, SERVER
from compatgate.kit.cli.output import open_input, print_json, say
from compatgate.kit.cli.parser import add_overlays
from compatgate.kit.cli.usage import command

_LINES = {
    "export": "export {name}={quoted}",
    "dotenv": '{name}="{value}"',
    "github": "{name}={value}",  # its readers take the rest of the line, quotes included
    "docker": "--build-arg={name}={value}",  # no value has blanks or what a shell expands
}
_WIDTH = max(map(len, MEANINGS))
_VARIABLES = "\n".join(f"  {name:<{_WIDTH}}  {meaning}" for name, meaning in MEANINGS.items())
_PROPERTIES = ("cuda", "driver", "arch", "brand")


@command(
    """\
--target NAME (required)  target, from --server or the database
| --pool driver=V,gpu=G[,os=O] ...  pool description; may be repeated
--format {export,dotenv,github,docker,json}
    export: shell lines (default); dotenv: quoted lines; json: a JSON object; github: unquoted lines
    for $GITHUB_ENV, GitLab's dotenv report and docker run --env-file; docker: --build-arg options
""",
    SERVER,
    """\
--database URL  database with the target (default: $COMPATGATE_DATABASE)
--bundle FILE   bundle with the target
""",
    add_overlays,
    format={"default": "export"},
    epilog="""\
examples:
  eval "$(compatgate env --pool driver=535.104.05,gpu=A100-SXM4-80GB)"
  compatgate env --target prod-a100 --format github >> "$GITHUB_ENV"
  docker build $(compatgate env --target prod-a100 --format docker) --tag app .
  compatgate env --pool driver=550.54.15,gpu=L4 --pool driver=570.124.06,gpu=H100 --format json

With several pools, versions are the lowest of all pools and GPU code covers all pools. Variables
that cannot suit every pool are omitted and explained on standard error.
exit status: 0 printed, 2 bad input, or no variable is known, 3 the gate does not answer

"""
    + f"variables:\n{_VARIABLES}",
)
def run(args: argparse.Namespace) -> int:
    """Print the variables; return 0, or 2 when no variable has a value."""
    facts = load_facts(args.facts)
    bodies = name_pools([read_pool(text) for text in args.pool])
    if args.target:
        with closing(open_targets(args)) as targets:
            bodies = [*targets.pools(args.target)]
    pools = [parse_pool(dict(body), facts.gpus) for body in bodies]
    result = build_environment(pools, facts)
    for conflict in result.conflicts:
        say(f"note: {conflict}")
    if not result.variables:
        raise BadInput("the pools determine no variable", hint="give driver and gpu of each pool")
    if args.format == "json":
        print_json(result.variables)
        return 0
    for name, value in result.variables.items():
        quoted = value if value.replace(".", "").isalnum() else f"'{value}'"
        print(_LINES[args.format].format(name=name, value=value, quoted=quoted))
    return 0


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
def run_require(args: argparse.Namespace) -> int:
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
