"""``compatgate image-compat check``: which rules of a spec hold on a pool."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from compatgate.errors import BadInput

if TYPE_CHECKING:
    import argparse

    from compatgate.core.facts import Facts
    from compatgate.core.target import Pool
    from compatgate.discovery.nfd import Answer
    from compatgate.discovery.nfd.spec import Compatibility

_STATUS = {"pass": 0, "fail": 1, "unknown": 3}
_RANK = {"pass": 0, "unknown": 1, "fail": 2}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action: the spec, where it is to hold, the form of the answer."""
    from compatgate.cli.check.options import add_where, add_who

    parser.epilog = (
        "exit status:\n  0  every rule holds   1  a rule fails   2  bad input   3  not all could be"
        " checked\n"
    )
    parser.add_argument(
        "spec", metavar="FILE|IMAGE", help="compatibility spec, or an image with one"
    )
    parser.add_argument("--platform", metavar="OS/CPU", help="platform in a multi-platform image")
    parser.add_argument("--tag", help="only sets with this tag")
    parser.add_argument(
        "--format", choices=("text", "json"), default="text", help="output format (default: text)"
    )
    add_where(parser.add_argument_group("where it is to hold"))
    add_who(parser.add_argument_group("who knows the target"))


def run(args: argparse.Namespace) -> int:
    """Answer rule by rule; the worst decides.

    Raises:
        BadInput: the spec is none, no set has the tag, or it is not said where.
        NotFound: nothing is attached to the image, or there is no such target.
    """
    from compatgate.catalog import load_facts
    from compatgate.discovery.nfd import evaluate
    from compatgate.discovery.nfd.devices import load_devices

    facts = load_facts(args.facts)
    sets = _sets(args)
    pools = _pools(args, facts)
    devices = load_devices()
    found = [(one, evaluate(one, pools, facts.gpus, devices)) for one in sets]
    worst = [_worst(answers) for _, answers in found]
    outcome = max(worst, key=_RANK.__getitem__)
    note = ""
    if len(set(worst)) > 1:
        outcome = "unknown"
        note = "the format does not say whether all sets must hold or one; choose with --tag"
    if args.format == "json":
        _print_json(outcome, found, note)
    else:
        _print_text(outcome, found, note)
    return _STATUS[outcome]


def _sets(args: argparse.Namespace) -> tuple[Compatibility, ...]:
    from compatgate.cli.check.observed import read_text
    from compatgate.cli.image_compat.attached import pulled
    from compatgate.discovery.nfd import read_spec

    local = args.spec == "-" or os.path.exists(args.spec)
    text = read_text(args.spec, "spec") if local else pulled(args.spec, args.platform)
    spec = read_spec(text, origin=args.spec)
    sets = tuple(one for one in spec.compatibilities if args.tag in (None, one.tag))
    if not any(one.rules for one in sets):
        tags = ", ".join(sorted({one.tag for one in spec.compatibilities if one.tag}))
        hint = f"tags: {tags}" if tags else ""
        raise BadInput("has no rules" + (f" with the tag {args.tag!r}" if args.tag else ""),
                       field=args.spec, hint=hint)  # fmt: skip
    return sets


def _pools(args: argparse.Namespace, facts: Facts) -> list[Pool]:
    from compatgate.cli.check.observed import read_observed
    from compatgate.cli.check.question import named, read_pool
    from compatgate.cli.target_pools import pools_of
    from compatgate.core.request import parse_pool

    stated = [read_pool(text) for text in args.pool]
    if args.target and (stated or args.probe or args.nvidia_smi or args.node_labels):
        raise BadInput("--target and a described pool exclude each other")
    bodies: list[dict[str, Any]] = stated
    if args.target:
        bodies = pools_of(args)
    elif args.probe or args.nvidia_smi or args.node_labels:
        bodies = read_observed(args, facts).choose(stated)
    if not bodies:
        hint = "--target NAME, or --pool driver=535.104.05,gpu=L4"
        raise BadInput("say where it is to hold", hint=hint)
    return [parse_pool({k: v for k, v in body.items() if v is not None}, facts.gpus)
            for body in named(bodies)]  # fmt: skip


def _worst(answers: tuple[Answer, ...]) -> str:
    return max((one.outcome for one in answers), key=_RANK.__getitem__, default="unknown")


def _print_json(
    outcome: str, found: list[tuple[Compatibility, tuple[Answer, ...]]], note: str
) -> None:
    import json

    sets = [
        {"tag": one.tag, "description": one.description, "rules": [a.to_json() for a in answers]}
        for one, answers in found
    ]
    print(json.dumps({"outcome": outcome, "sets": sets, **({"note": note} if note else {})}))


def _print_text(
    outcome: str, found: list[tuple[Compatibility, tuple[Answer, ...]]], note: str
) -> None:
    from compatgate.cli.terminal import paint, printable, wants_colour

    colour = wants_colour(sys.stdout)
    paints = {"pass": "green", "fail": "red", "unknown": "yellow"}
    for one, answers in found:
        if one.description:
            print(printable(one.description))
        for answer in answers:
            mark = paint(f"{answer.outcome:<7}", paints[answer.outcome], colour=colour)
            print(f"  {mark}  {printable(answer.pool)}: {printable(answer.rule)}")
            for text in answer.why:
                print(f"           {printable(text)}")
    if note:
        print(f"  note: {note}")
    print({"pass": "every rule holds", "fail": "a rule fails",
           "unknown": "not every rule could be checked"}[outcome])  # fmt: skip
