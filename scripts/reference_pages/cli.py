"""Write the page of the command line from its argument parsers."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from compatgate.cli.main import COMMANDS, parser_of
from compatgate.kit.cli.parser import Parser

HEAD = """# Command line

`make docs` writes this page from the parsers of the commands. `--help` prints the same text for a
command (`compatgate check --help`) or an action (`compatgate canary run --help`).

Exit status, where a command does not say otherwise:

| status | meaning |
|---|---|
| 0 | done, or allowed |
| 1 | denied, or something was found |
| 2 | bad input or usage |
| 3 | no decision, or no answer |
| 130 | interrupted |
| 141 | the output was closed |

"""
HELP = argparse._HelpAction
ACTIONS = argparse._SubParsersAction


def page() -> str:
    """Return the whole page."""
    index = "\n".join(
        f"- [{name}](#compatgate-{name}): {text}" for name, (_, text) in COMMANDS.items()
    ).replace("*", "\\*")
    parts = (_command(parser_of(name)) for name in COMMANDS)
    return f"{HEAD}{index}\n\n" + "\n\n".join(parts) + "\n"


def _command(parser: Parser, level: int = 2) -> str:
    """Return a command's section, and those of its actions below it."""
    parts = [f"{'#' * level} {parser.prog}", parser.description or "", _usage(parser)]
    parts += [_group(group) for group in parser._action_groups if _shown(group)]
    parser.add_examples()
    if parser.epilog:
        parts.append(f"```text\n{parser.epilog.strip()}\n```")
    for action in parser._actions:
        if isinstance(action, ACTIONS):
            parts += [_command(named, level + 1) for named in action.choices.values()]
    return "\n\n".join(part for part in parts if part)


def _usage(parser: argparse.ArgumentParser) -> str:
    words = [parser.prog]
    if any(a.option_strings and not isinstance(a, HELP) for a in parser._actions):
        words.append("[OPTION...]")
    words += [_positional(a) for a in parser._actions if not a.option_strings]
    return f"```text\n{' '.join(words)}\n```"


def _positional(action: argparse.Action) -> str:
    if isinstance(action, ACTIONS):
        return "ACTION ..."
    name = _metavar(action)
    return {"?": f"[{name}]", "*": f"[{name}...]", "+": f"{name}..."}.get(str(action.nargs), name)


def _shown(group: argparse._ArgumentGroup) -> list[argparse.Action]:
    return [
        action
        for action in group._group_actions
        if action.help != argparse.SUPPRESS and not isinstance(action, HELP | ACTIONS)
    ]


def _group(group: argparse._ArgumentGroup) -> str:
    title = {"positional arguments": "arguments"}.get(group.title or "", group.title or "options")
    items = "\n".join(_item(action) for action in _shown(group))
    return f"**{title[0].upper()}{title[1:]}**\n\n{items}"


def _item(action: argparse.Action) -> str:
    names = ", ".join(_names(action))
    return f"- {names}: {_help(action.help, action)}" if action.help else f"- {names}"


def _names(action: argparse.Action) -> Iterator[str]:
    if not action.option_strings:
        yield f"`{_metavar(action)}`"
        return
    value = "" if action.nargs == 0 else f" {_metavar(action)}"
    for name in action.option_strings:
        yield f"`{name}{value}`"


def _metavar(action: argparse.Action) -> str:
    if isinstance(action.metavar, tuple):
        return " ".join(action.metavar)
    if action.metavar is None and action.choices:
        return "|".join(map(str, action.choices))
    default = action.dest.upper() if action.option_strings else action.dest
    return action.metavar or default


def _help(text: str, action: argparse.Action) -> str:
    """Return a help text with the values that argparse fills in, safe as Markdown."""
    filled = text % {**vars(action), "prog": "compatgate"}
    return " ".join(filled.split()).replace("<", "\\<").replace("*", "\\*")
