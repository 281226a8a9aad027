"""Every command on every page is one that the program takes, with options that it has."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from compatgate.cli.main import COMMANDS, _parser

ROOT = Path(__file__).parents[3]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "deploy/README.md")),
    *sorted((ROOT / "docs").glob("**/*.md")),
    *sorted((ROOT / "canary").glob("*/README.md")),
]
BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHELL = ("console", "sh", "")
COMMAND = re.compile(r"(?<![\w./-])compatgate (?=[a-z])")
END = re.compile(r"\)\"?|[|;<]|\d?>|&&|\s#|\"}|\n")
"""What ends a command of a shell, as far as the pages write them."""


@cache
def parser(name: str) -> argparse.ArgumentParser:
    return _parser(name, import_module(COMMANDS[name][0]))


def commands(text: str) -> Iterator[str]:
    """Each call of the program in a block, without what the shell does around it."""
    joined = re.sub(r"\\\n\s*", " ", text)
    for match in COMMAND.finditer(joined):
        rest = joined[match.end() :]
        quoted = re.sub(r"'[^']*'|\"[^\"]*\"", lambda m: "_" * len(m[0]), rest)
        end = END.search(quoted)
        yield rest[: end.start() if end else None].strip()


def calls() -> list[tuple[str, str]]:
    return [
        (str(page.relative_to(ROOT)), command)
        for page in PAGES
        for language, block in BLOCK.findall(page.read_text())
        if (language.split() or [""])[0] in SHELL
        for command in commands(block)
        if command.split()[0] in COMMANDS
    ]


def mentions() -> list[tuple[str, str]]:
    """Commands in running text, which may be cut short; only their options are looked at."""
    return [
        (str(page.relative_to(ROOT)), command)
        for page in PAGES
        for command in re.findall(r"`compatgate ([^`]+)`", page.read_text())
    ]


@pytest.mark.parametrize(("page", "command"), sorted(set(calls())))
def test_a_command_of_a_page_is_taken(page: str, command: str) -> None:
    name, *arguments = shlex.split(command)
    parser(name).parse_args(arguments)


@pytest.mark.parametrize(("page", "command"), sorted(set(mentions())))
def test_what_a_page_mentions_exists(page: str, command: str) -> None:
    words = command.split()
    if words[0].startswith("-"):
        return
    found = parser(words[0])
    for action in found._actions:
        if isinstance(action, argparse._SubParsersAction) and len(words) > 1:
            named = re.split(r"[|]", words[1])
            assert set(named) <= set(action.choices), f"{page}: {command}"
            found = action.choices[named[0]]
    for option in re.findall(r"(?<=[ \[(|])--[a-z][a-z-]*", command):
        assert option in found._option_string_actions, f"{page}: {command}"


def test_the_pages_have_many_commands() -> None:
    assert len(calls()) > 80
    assert len(mentions()) > 80
