"""Every command on every page is one that the program takes, with options that it has."""

from __future__ import annotations

import argparse
import ast
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from compatgate.cli.main import COMMANDS, parser_of

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
    return parser_of(name)


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


def blocks(*languages: str) -> list[tuple[str, str]]:
    return [
        (str(page.relative_to(ROOT)), block)
        for page in PAGES
        for language, block in BLOCK.findall(page.read_text())
        if (language.split() or [""])[0] in languages
    ]


@pytest.mark.parametrize(("page", "block"), blocks("python"))
def test_what_a_page_imports_exists(page: str, block: str) -> None:
    written = re.findall(r'^```python title="(.*)\.py"$', (ROOT / page).read_text(), re.MULTILINE)
    for node in ast.walk(ast.parse(block)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("compatgate"):
            if (node.module or "").replace(".", "/") in written:
                continue  # the page's own file
            module = import_module(node.module or "")
            assert [n.name for n in node.names if not hasattr(module, n.name)] == [], page


@pytest.mark.parametrize(("page", "block"), blocks("yaml", "toml", "json"))
def test_a_file_of_a_page_is_one(page: str, block: str) -> None:
    if block.startswith("{"):
        assert [json.loads(part) for part in re.split(r"\n(?=\{)", block)], page
        return
    try:
        assert tomllib.loads(block), page
    except tomllib.TOMLDecodeError:
        assert all(isinstance(d, dict | list) for d in yaml.load_all(block, yaml.CSafeLoader)), page


def slug(heading: str) -> str:
    """A heading's anchor as code forges make it."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip().lower())
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_link_of_a_page_leads_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", BLOCK.sub("", page.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        there = page.parent / file if file else page
        assert there.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.*)$", there.read_text(), re.MULTILINE)
            assert anchor in map(slug, headings), link


def test_the_pages_have_many_commands() -> None:
    assert len(calls()) > 80
    assert len(mentions()) > 80
