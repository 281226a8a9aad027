"""Run ``compatgate solve``: find whole stacks that pass on targets or pools, best first."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable
from contextlib import closing
from typing import TYPE_CHECKING, Any

from compatgate.check.cli import FACTS_DECIDER, complete_decider
from compatgate.check.deciders import Decider, choose_decider
from compatgate.check.question import name_pools, read_pool
from compatgate.check.resolver import TORCH_INDEX, name_distributions, pins_of
from compatgate.check.stack_sources import read_files, read_platforms
from compatgate.core.components import label_of
from compatgate.core.facts import Facts
from compatgate.core.rule import EXIT_ALLOWED, EXIT_DENIED, EXIT_NO_DECISION, REFUSING
from compatgate.core.stack import SPECIAL_KEYS, parse_stack_text
from compatgate.errors import BadInput
from compatgate.formats.text import fix_option, format_stack
from compatgate.kit.cli.options import FORMAT
from compatgate.kit.cli.output import (
    paint,
    print_json,
    strip_controls,
    wants_colour,
    width_of,
    wrap,
)
from compatgate.kit.cli.usage import command

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

Json = dict[str, Any]
SOLVE_PLACES = """\
--target NAME ...  target; may be repeated: a stack must pass on every one
--pool driver=V,gpu=G[,os=O] ...  pool description instead of targets; may be repeated
"""
_EXTRAS = {"jax": "[cuda{major}]", "tensorflow": "[and-cuda]", "onnxruntime-gpu": "[cuda,cudnn]"}
"""Extras of the frameworks that bring no CUDA of their own."""
_STOPPED = """\
the search stopped at its limit, and not every combination was tried: narrow the wants, or state
fewer parts to start from"""
_MARKS = {"pass": ("PASS", "green"), "warn": ("WARN", "yellow")}


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


def render_solved(found: Json, facts: Facts, width: int, *, colour: bool) -> str:
    """Return the answer of the solver as text, at most ``width`` columns wide.

    The command that installs a stack is one line, however long.
    """
    where = ", ".join(found["targets"]) or "the described pools"
    want = ", ".join(f"{n} {c}" if c != "*" else n for n, c in found["want"].items())
    count = len(found["stacks"])
    if count:
        stacks, verb = ("stacks", "pass") if count > 1 else ("stack", "passes")
        head, hue = f"{count} {stacks} with {want} {verb} on {where}", "green"
    elif found["unknown"] or not found["complete"]:
        head, hue = f"no decision: no stack with {want} was found that passes on {where}", "yellow"
    else:
        head, hue = f"no known stack with {want} passes on {where}", "red"
    lines = wrap(strip_controls(head), width)
    lines[0] = paint(lines[0], "bold", hue, colour=colour)
    for text in found["unknown"]:
        lines += wrap(f"  {strip_controls(text)}", width)
    for number, one in enumerate(found["stacks"], 1):
        lines += ["", *_render_stack(number, one, width, colour=colour)]
        if line := install_line(one["stack"], found["want"], facts):
            lines.append(f"         {strip_controls(line)}")
    if found["misses"]:
        lines += ["", "nearest misses:"]
    for miss in found["misses"]:
        lines += ["", *_render_miss(miss, width)]
    if not found["complete"]:
        lines += ["", *wrap(_STOPPED, width)]
    lines += ["", f"{found['evaluated']} evaluations; facts {found['facts'][:19]}"]
    return "\n".join(lines)


def _render_stack(number: int, one: Json, width: int, *, colour: bool) -> list[str]:
    worst = "warn" if any(v["verdict"] == "warn" for v in one["verdicts"]) else "pass"
    mark, hue = _MARKS[worst]
    stack = wrap(format_stack(one["stack"]), width - 9)
    lines = [f"{number:>2} {paint(f'{mark:<5}', 'bold', hue, colour=colour)} {stack[0]}"]
    lines += [f"         {line}" for line in stack[1:]]
    details = []
    changed = [
        f"adds {change['name']} {change['after']}"
        if change["before"] is None
        else f"{label_of(change['name'])} {change['before']} -> {change['after']}"
        for change in one["changes"]
        if change["after"]
    ]
    if changed:
        details.append(f"changes {', '.join(changed)}")
    if left := [label_of(change["name"]) for change in one["changes"] if not change["after"]]:
        details.append(f"leaves to the installer {', '.join(left)}")
    details += [
        f"build {name} for the GPU code in brackets: it is compiled where it is installed"
        for name in one["build"]
    ]
    for verdict in one["verdicts"]:
        said = [f"{f['rule']} {f['name']}" for f in verdict["findings"] if f["outcome"] != "waived"]
        where = strip_controls(verdict["target"] or ", ".join(verdict["pools"]))
        findings = f" ({', '.join(dict.fromkeys(said))})" if said else ""
        until = f", valid until {verdict['valid_until'][:10]}" if verdict["valid_until"] else ""
        details.append(f"{where}: {verdict['verdict']}{findings}{until}, {verdict['id']}")
    return [*lines, *_indent(details, width)]


def install_line(stack: Json, want: dict[str, str], facts: Facts) -> str:
    """Return the command that installs a stack, with the indexes of its builds.

    Where a build is on no known index, say so; empty where the index has no part of the stack.
    """
    written = {name: text for name, text in stack.items() if isinstance(text, str)}
    names = name_distributions(written, facts)
    built = {name: text for name, text in written.items() if "[" not in text}
    pins = pins_of(built, names, {"": TORCH_INDEX})
    if not pins.versions:
        return ""
    for name in facts.framework_names & names.keys() - {"torch"}:
        if names[name] in pins.sources:
            return f"not on the package index: {name} {written[name]}; its project has such builds"
    major = written.get("cuda", "").partition(".")[0]
    extras = {names[n]: e.format(major=major) for n, e in _EXTRAS.items() if n in names and major}
    parts = [f"{name}{extras.get(name, '')}=={text}" for name, text in pins.versions.items()]
    if "tensorrt" in names:  # the index has a fourth number: 10.13.3.9
        parts = [f"{one}.*" if one.startswith(names["tensorrt"]) else one for one in parts]
    absent = {name: text for name, text in want.items() if name not in stack}
    parts += [name if text == "*" else f"{name}{text}" for name, text in absent.items()]
    python = [f"python{written['python']}", "-m"] if "python" in written else []
    indexes = [word for url in pins.indexes.values() for word in ("--extra-index-url", url)]
    return shlex.join([*python, "pip", "install", *parts, *indexes])


def _render_miss(miss: Json, width: int) -> list[str]:
    lines = wrap(f"-- {format_stack(miss['stack'])}", width)
    details = []
    for verdict in miss["verdicts"]:
        where = strip_controls(verdict["target"] or ", ".join(verdict["pools"]))
        for finding in verdict["findings"]:
            if finding["outcome"] not in REFUSING:
                continue
            said = f"{finding['outcome']} {finding['rule']} {finding['name']}"
            details.append(f"{where}: {said}: {finding['message']}")
            details += [
                f"  fix: {fix['message']}: {fix_option(fix['set'])}" for fix in finding["fixes"][:1]
            ]
    return [*lines, *_indent(details, width)]


def _indent(texts: Iterable[str], width: int) -> list[str]:
    return [f"         {line}" for text in texts for line in wrap(text, max(width - 9, 30))]
