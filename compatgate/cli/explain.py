"""Run ``compatgate explain``: show what a rule checks, why, and how to fix it."""

from __future__ import annotations

import argparse
import sys
from difflib import get_close_matches

from compatgate.core.rule import Rule
from compatgate.core.rules import BY_ID, BY_NAME, RULES
from compatgate.errors import BadInput
from compatgate.kit.cli.options import FORMAT_OR_MARKDOWN
from compatgate.kit.cli.output import print_json
from compatgate.kit.cli.terminal import paint, wants_colour, width_of, wrap
from compatgate.kit.cli.usage import command


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
