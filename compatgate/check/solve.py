"""Run ``compatgate solve``: find whole stacks that pass on targets or pools, best first."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

from compatgate.check.cli import FACTS_DECIDER, complete_decider
from compatgate.check.deciders import Decider, choose_decider
from compatgate.check.question import name_pools, read_pool
from compatgate.check.solved import render_solved
from compatgate.check.stack_sources import read_files, read_platforms
from compatgate.core.rule import EXIT_ALLOWED, EXIT_DENIED, EXIT_NO_DECISION
from compatgate.core.stack import SPECIAL_KEYS, parse_stack_text
from compatgate.errors import BadInput
from compatgate.kit.cli.options import FORMAT
from compatgate.kit.cli.output import print_json
from compatgate.kit.cli.terminal import wants_colour, width_of
from compatgate.kit.cli.usage import command

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence


Json = dict[str, Any]


SOLVE_PLACES = """\
--target NAME ...  target; may be repeated: a stack must pass on every one
--pool driver=V,gpu=G[,os=O] ...  pool description instead of targets; may be repeated
"""


@command(
    """\
--want NAME[CONSTRAINT],... ...  wanted parts, such as "torch>=2.6,<2.9,flash-attn"; may be repeated
""",
    SOLVE_PLACES,
    """\
base: --from STACK|LOCK  change as little as possible of this stack (torch=2.4.1+cu121,cuda=12.1) or
                         lockfile
--stack NAME=VALUE,...   properties of every stack in addition to versions: arch=sm_80,
                         needs=bf16+60GiB
--limit N                number of stacks to show, 1 to 20 (default: 5)
--no-warnings            exclude stacks that pass with warnings
""",
    FACTS_DECIDER,
    FORMAT,
    epilog="""\
Fewest changes from --from come first, then the newest versions of the wanted parts (the first
weighs most), then stacks without warnings. Each stack was evaluated as compatgate check does.

exit status:
  0  a stack passes           1  every known stack was tried, and none passes
  2  bad input or usage       3  no decision: the search stopped at its limit, the facts know no
                                 release of a wanted part, or no answer

examples:
  compatgate solve --target prod-a100 --want "torch>=2.6,flash-attn"
  compatgate solve --pool driver=535.183.01,gpu=A100-SXM4-80GB --want vllm
  compatgate solve --target prod-a100 --from uv.lock --want "torch>=2.6"
  compatgate solve --target prod-a100 --target inference-l4 --want torch --format json
""",
    limit={"type": int},
)
def run(args: argparse.Namespace) -> int:
    """Print the stacks; return the exit status."""
    complete_decider(args)
    with closing(choose_decider(args)) as decider:
        pools = read_solve_pools(args)
        body = _read_question(args, decider, pools)
        solution = decider.solve(body, pools)
        facts = decider.facts()
    if args.format == "json":
        print_json(solution)
    else:
        print(render_solved(solution, facts, width_of(sys.stdout), colour=wants_colour(sys.stdout)))
    return solve_exit(solution)


def solve_exit(found: Mapping[str, Any]) -> int:
    """Return the exit status of an answer: what was not tried or is not known, decides nothing."""
    if found["found"]:
        return EXIT_ALLOWED
    return EXIT_DENIED if found["complete"] and not found["unknown"] else EXIT_NO_DECISION


def read_solve_pools(args: argparse.Namespace) -> list[Json]:
    """Return the described pools."""
    if bool(args.target) == bool(args.pool):
        hint = "--target NAME, or --pool driver=535.104.05,gpu=L4"
        raise BadInput("name targets or describe pools", field="--target", hint=hint)
    return [dict(pool) for pool in name_pools([read_pool(text) for text in args.pool])]


def _read_question(args: argparse.Namespace, decider: Decider, pools: Sequence[Json]) -> Json:
    if not args.want:
        hint = 'for example --want "torch>=2.6"'
        raise BadInput("must name at least one part", field="--want", hint=hint)
    body: Json = {"want": args.want}
    if args.target:
        body["targets"] = args.target
    if args.limit is not None:
        body["limit"] = args.limit
    if args.no_warnings:
        body["warnings"] = False
    if args.stack:
        body["stack"] = parse_stack_text(args.stack)
    if args.base:
        body["from"] = read_base(args.base, decider, pools)
    return body


def read_base(text: str, decider: Decider, pools: Sequence[Mapping[str, Any]]) -> Json:
    """Return the stack to start from: of a lockfile, or as written.

    What a lockfile leaves open does not matter here: only its versions are a start.
    """
    if "=" in text and not os.path.exists(text):
        return parse_stack_text(text)

    facts = decider.facts()
    platforms = read_platforms(pools, None, {}, facts.gpus)
    stack = read_files(text, None, platforms, {}, facts.packages).stack
    versions = {name: value for name, value in stack.items() if name not in SPECIAL_KEYS}
    if not versions:
        raise BadInput("has no GPU components", field="--from", value=text)
    return versions
