"""Run ``compatgate explain`` and ``triage``: what a rule checks, and which cause an error has."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from contextlib import closing
from difflib import get_close_matches
from typing import Any

from compatgate.check.cli import FACTS_DECIDER, PLACES, STACK, complete_decider
from compatgate.check.deciders import Decider, choose_decider
from compatgate.check.question import read_questions
from compatgate.core.rule import Rule
from compatgate.core.rules import BY_ID, BY_NAME, RULES
from compatgate.core.stated_text import complete_question
from compatgate.core.triage import MAX_TEXT, compare_verdict, find_causes
from compatgate.errors import BadInput
from compatgate.kit.cli.options import FORMAT, FORMAT_OR_MARKDOWN
from compatgate.kit.cli.output import (
    paint,
    print_answer,
    print_json,
    read_text,
    strip_controls,
    wants_colour,
    width_of,
    wrap,
)
from compatgate.kit.cli.usage import command, titled

EXIT_NOT_RECOGNISED = 3
_HERE = {
    "fails": "fails here",
    "warns": "warns here",
    "unknown": "cannot decide for this stack",
    "holds": "holds for this stack; look for another cause",
    "not-applicable": "does not apply to this stack",
}


@command(
    "[RULE]  rule id or name (default: list all rules)",
    FORMAT_OR_MARKDOWN,
    epilog="""\
examples:
  compatgate explain                    every rule in one line
  compatgate explain CG101              or: compatgate explain driver-too-old
  compatgate explain --format markdown  every rule, as a page
""",
)
def run(args: argparse.Namespace) -> int:
    """Print the documentation of rules."""
    rules = RULES if args.rule is None else (find_rule(args.rule),)
    if args.format == "json":
        print_json([*map(_to_json, rules)] if args.rule is None else _to_json(rules[0]))
    elif args.format == "markdown":
        print("\n\n".join(_markdown(rule) for rule in rules))
    elif args.rule is None:
        width = max(len(rule.name) for rule in RULES)
        for rule in RULES:
            print(f"{rule.id}  {rule.name:<{width}}  {_summary(rule)}")
    else:
        print(_text(rules[0], width_of(sys.stdout), colour=wants_colour(sys.stdout)))
    return 0


def find_rule(text: str) -> Rule:
    """Return the rule with this id or name, in upper or lower case."""
    wanted = text.strip().lower().replace("_", "-")
    if rule := BY_ID.get(wanted.upper()) or BY_NAME.get(wanted):
        return rule

    names = {rule.id.lower(): rule.id for rule in RULES} | {rule.name: rule.name for rule in RULES}
    near = [names[match] for match in get_close_matches(wanted, names, n=3)]
    hint = f"did you mean {' or '.join(near)}?" if near else "list all with compatgate explain"
    raise BadInput(f"unknown rule '{text}'", field="rule", value=text, hint=hint)


def _summary(rule: Rule) -> str:
    return rule.documentation.partition("\n")[0]


def _paragraphs(rule: Rule) -> list[str]:
    """Return the documentation after its first paragraph."""
    return [" ".join(p.split()) for p in rule.documentation.split("\n\n")]


def _text(rule: Rule, width: int, *, colour: bool) -> str:
    lines = [paint(f"{rule.id} {rule.name}", "bold", colour=colour)]
    for paragraph in _paragraphs(rule):
        label, colon, rest = paragraph.partition(": ")
        marked = colon and label in ("Example", "Fix", "Source")
        wrapped = wrap(f"{label}: {rest}" if marked else paragraph, min(width, 100) - 2)
        lines.append("")
        for number, line in enumerate(wrapped):
            if marked and number == 0:
                line = paint(f"{label}:", "bold", colour=colour) + line.removeprefix(f"{label}:")
            lines.append(f"  {line.replace('``', '')}")
    return "\n".join(lines)


def _markdown(rule: Rule) -> str:
    parts = [f"## {rule.id} {rule.name}"]
    for paragraph in _paragraphs(rule):
        text = paragraph.replace("``", "`")
        for label in ("Example", "Fix", "Source"):
            if text.startswith(f"{label}: "):
                text = f"**{label}:** {text.removeprefix(f'{label}: ')}"
        parts.append(text)
    return "\n\n".join(parts)


def _to_json(rule: Rule) -> dict[str, object]:
    sections: dict[str, str | None] = {"example": None, "fix": None, "source": None}
    body = []
    for paragraph in _paragraphs(rule):
        label, _, rest = paragraph.partition(": ")
        if label.lower() in sections and rest:
            sections[label.lower()] = rest
        else:
            body.append(paragraph)
    return {
        "id": rule.id,
        "name": rule.name,
        "summary": _summary(rule),
        "about_facts": rule.about_facts,
        "description": "\n\n".join(body),
        **sections,
    }


def _ask_no_files(parser: argparse.ArgumentParser) -> None:
    """State the options of ``check`` that name files, which are not offered here."""
    parser.set_defaults(lock=[], sbom=None, image=None, read_wheels=False, cached_wheels=False)
    parser.set_defaults(dockerfile=None, build_arg=[], build_stage=None)


@command(
    'file: FILE|-  error or log to read ("-": standard input)',
    titled("target or pool", PLACES),
    titled("stack", STACK),
    FACTS_DECIDER,
    FORMAT,
    _ask_no_files,
    epilog="""\
exit status:
  0  something was recognised      2  bad input      3  nothing was recognised, or no gate answers

examples:
  the output of a program that failed
    python train.py 2>&1 | tee run.log; compatgate triage run.log
  what a container engine said
    docker run --gpus all IMAGE 2>&1 | compatgate triage -
  also: does the cause hold for this stack on this pool, and which change helps
    compatgate triage run.log --stack torch=2.4.1+cu121 --pool driver=535.104.05,gpu=A100-SXM4-80GB
    compatgate triage run.log --stack torch=2.4.1+cu121 --target prod-a100 --format json

Versions, driver and GPU that the text itself states are used where no option names them.
"likely" means that other causes print the same words: the command after "confirm:" decides.
The text never leaves this machine; --server receives only the stack. Signatures are facts:
compatgate facts show error_signatures; overlays may add some. Xid lines: compatgate health.
""",
)
def run_triage(args: argparse.Namespace) -> int:
    """Print the causes; return 0 when there is one, else 3."""
    places = (args.file, args.probe, args.nvidia_smi, args.node_labels)
    if places.count("-") > 1:
        raise BadInput("standard input can be read only once", field="FILE")
    complete_decider(args)
    text = read_text(args.file, "FILE", MAX_TEXT)
    with closing(choose_decider(args, recorded=False)) as decider:
        causes = find_causes(text, decider.facts().error_signatures)
        stated = _complete_question(args, text, decider) if causes else {}
        if args.stack or args.set or _is_placed(args):
            # a wrong stack is refused even if no cause was found
            asked = read_questions(args, decider.facts).questions[0]
            causes = compare_verdict(causes, decider.decide(asked.bodies))
    found = [cause.to_json() for cause in causes]
    used = ", ".join(f"{name}={value}" for name, value in stated.items())
    parts = [f"stated in the text, and used: {used}"] if stated else []
    nothing = "nothing was recognised; compatgate recognises only errors of the GPU stack"
    parts += map(_format_cause, found) if found else [nothing]
    print_answer(args.format, {"causes": found, "stated": stated}, "\n\n".join(parts))
    return 0 if found else EXIT_NOT_RECOGNISED


def _is_placed(args: argparse.Namespace) -> bool:
    return any((args.target, args.pool, args.probe, args.nvidia_smi, args.node_labels))


def _complete_question(args: argparse.Namespace, text: str, decider: Decider) -> dict[str, str]:
    """Use what the text states where no option says otherwise; return what is used.

    A question needs both a stack and a place: with one of them missing, none is asked.
    """
    question = {"stack": args.stack or args.probe, "pool": _is_placed(args)}
    whole, stated = complete_question(question, text, decider.facts())
    for option in ("stack", "pool"):
        if isinstance(values := whole[option], dict):
            setattr(args, option, [",".join(f"{name}={text}" for name, text in values.items())])
    return stated


def _format_cause(cause: Mapping[str, Any]) -> str:
    lines = [f"{cause['id']} ({cause['confidence']})", f"  {cause['message']}"]
    lines.append(f"  seen:    {strip_controls(cause['seen'])}")
    if cause["rule"]:
        here = cause.get("here")
        lines.append(f"  rule:    {cause['rule']}{' ' + _HERE[here['outcome']] if here else ''}")
        lines += [f"           {one['message']}" for one in here["findings"]] if here else []
    lines.append(f"  confirm: {cause['next']}")
    for fix in cause["fixes"]:
        mark = "verified: " if fix.get("verified") else ""
        lines.append(f"  fix:     {mark}{fix['message']}")
    return "\n".join(lines)
