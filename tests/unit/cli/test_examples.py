"""Each action shows an example in its help, which the program takes."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator

import pytest

from compatgate.cli.main import COMMANDS, parser_of

CALL = re.compile(r"(?:^ +|^example: |\| |\$\(|&& )compatgate (.*)")
END = re.compile(r"\s[|<]|\s\d?>|\s&&|\s#|\)(?=[\"\s]|$)| {2,}")
"""What ends a command of a shell, or begins the words that explain it."""


def leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    groups = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    for group in groups:
        for child in group.choices.values():
            yield from leaves(child)
    if not groups:
        yield parser


def examples(parser: argparse.ArgumentParser) -> list[str]:
    """The arguments of each example in the help, below a line ``examples:``."""
    text = re.search(r"^examples?:.*", parser.format_help(), re.MULTILINE | re.DOTALL)
    lines = re.sub(r"\\\n\s*", " ", text[0] if text else "").splitlines()
    return [cut(match[1]) for line in lines if (match := CALL.search(line))]


def cut(call: str) -> str:
    """Return a call without what the shell does after it."""
    quoted = re.sub(r"'[^']*'|\"[^\"]*\"", lambda m: "_" * len(m[0]), call)
    end = END.search(quoted)
    return call[: end.start()] if end else call


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_each_action_has_an_example_that_the_program_takes(name: str) -> None:
    whole = parser_of(name)
    for leaf in leaves(whole):
        action = leaf.prog.removeprefix("compatgate ")
        shown = examples(leaf)
        assert any(f"{one} ".startswith(f"{action} ") for one in shown), leaf.format_help()
        for one in shown:
            command, *arguments = shlex.split(one)
            parser_of(command).parse_args(arguments)
