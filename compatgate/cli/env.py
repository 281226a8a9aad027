"""Run ``compatgate env``: print build variables for machines without a GPU."""

from __future__ import annotations

import argparse
import sys

from compatgate.catalog import load_facts
from compatgate.check.deciders import pools_of
from compatgate.check.question import name_pools, read_pool
from compatgate.core.build_environment import MEANINGS, build_environment
from compatgate.core.request import parse_pool
from compatgate.core.versions import parse_version
from compatgate.errors import BadInput, naming
from compatgate.kit.cli.options import SERVER
from compatgate.kit.cli.output import print_json
from compatgate.kit.cli.parser import add_overlays
from compatgate.kit.cli.terminal import say
from compatgate.kit.cli.usage import command

_LINES = {
    "export": "export {name}={quoted}",
    "dotenv": '{name}="{value}"',
    "github": "{name}={value}",  # its readers take the rest of the line, quotes included
    "docker": "--build-arg={name}={value}",  # no value has blanks or what a shell expands
}
_COMMENTED = ("export", "dotenv")
"""Formats whose reader ignores a line that begins with ``#``."""
_WIDTH = max(map(len, MEANINGS))
_VARIABLES = "\n".join(f"  {name:<{_WIDTH}}  {meaning}" for name, meaning in MEANINGS.items())


@command(
    """\
--target NAME (required)  target, from --server or the database
| --pool driver=V,gpu=G[,os=O] ...  pool description; may be repeated
--toolkit V               CUDA version of the builder; its nvcc decides on host compilers (default:
                          the CUDA version of the drivers)
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
that cannot suit every pool are omitted and explained on standard error. The newest host compilers
that nvcc takes are a comment, on standard error where the format has none; JSON has them as
host_compilers, in the form of a stack.
exit status: 0 printed, 2 bad input, or no variable is known, 3 the gate does not answer

"""
    + f"variables:\n{_VARIABLES}",
)
def run(args: argparse.Namespace) -> int:
    """Print the variables; return 0, or 2 when no variable has a value."""
    facts = load_facts(args.facts)
    with naming("--toolkit"):
        toolkit = parse_version("cuda", args.toolkit) if args.toolkit else None
    bodies = pools_of(args) if args.target else name_pools([read_pool(text) for text in args.pool])
    pools = [parse_pool(dict(body), facts.gpus) for body in bodies]
    result = build_environment(pools, facts, toolkit)
    for conflict in result.conflicts:
        say(f"note: {conflict}")
    if not result.variables:
        raise BadInput("the pools determine no variable", hint="give driver and gpu of each pool")
    if args.format == "json":
        compilers = result.compilers
        more = {"host_compilers": compilers.to_text()} if compilers else {}
        print_json({**result.variables, **more})
        return 0
    for name, value in result.variables.items():
        quoted = value if value.replace(".", "").isalnum() else f"'{value}'"
        print(_LINES[args.format].format(name=name, value=value, quoted=quoted))
    if result.compilers:
        mark = "# " if args.format in _COMMENTED else "note: "
        where = sys.stdout if args.format in _COMMENTED else sys.stderr
        print(f"{mark}{result.compilers.describe()}", file=where)
    return 0
