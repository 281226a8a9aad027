"""Run ``compatgate env``: print build variables for machines without a GPU."""

from __future__ import annotations

import argparse

from compatgate.catalog import load_facts
from compatgate.check.deciders import pools_of
from compatgate.check.question import name_pools, read_pool
from compatgate.core.build_environment import MEANINGS, build_environment
from compatgate.core.request import parse_pool
from compatgate.errors import BadInput
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
_WIDTH = max(map(len, MEANINGS))
_VARIABLES = "\n".join(f"  {name:<{_WIDTH}}  {meaning}" for name, meaning in MEANINGS.items())


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
    bodies = pools_of(args) if args.target else name_pools([read_pool(text) for text in args.pool])
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
