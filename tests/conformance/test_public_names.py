"""Commands, options and fields of files stay as others' scripts know them.

`contracts/commands.txt` has a line for each command and option, `contracts/files.txt` one for each
field of a file. One that is gone needs a row in docs/reference/removed.yaml, which says what
replaces it; a new one is listed in `contracts/added.txt`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from compatgate.cli.main import COMMANDS, parser_of

HERE = Path(__file__).parent / "contracts"
ROOT = Path(__file__).parents[2]
KINDS = {"command", "option", "path", "page", "file-format", "table", "setting"}


def command_lines(parser: argparse.ArgumentParser) -> Iterator[str]:
    name = parser.prog.removeprefix("compatgate ")
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for one in action.choices.values():
                yield from command_lines(one)
            continue
        names = ", ".join(action.option_strings) or f"<{action.metavar or action.dest}>"
        choices = f" {{{','.join(map(str, action.choices))}}}" if action.choices else ""
        takes = "" if action.nargs is None else f" nargs={action.nargs}"
        needs = " required" if action.required and action.option_strings else ""
        yield f"{name} | {names}{choices}{takes}{needs}"


def file_lines(schema: Any, path: str) -> Iterator[str]:
    if isinstance(schema, dict):
        for name, value in schema.get("properties", {}).items():
            must = " required" if name in schema.get("required", ()) else ""
            kind = value.get("type", value.get("$ref", "")) if isinstance(value, dict) else ""
            yield f"{path}.{name}{must} {kind}".rstrip()
        for name, value in schema.items():
            yield from file_lines(value, path if name == "properties" else f"{path}.{name}")
    elif isinstance(schema, list):
        for value in schema:
            yield from file_lines(value, path)


def commands() -> set[str]:
    return {line for name in COMMANDS for line in command_lines(parser_of(name))}


def files() -> set[str]:
    schemas = sorted((ROOT / "matrix" / "schema").glob("*.schema.json"))
    return {
        line
        for path in schemas
        for line in file_lines(json.loads(path.read_text()), path.name.partition(".")[0])
    }


def lines_of(name: str) -> set[str]:
    return set((HERE / name).read_text().splitlines())


def removed() -> list[dict[str, str]]:
    rows: list[dict[str, str]] = yaml.safe_load(
        (ROOT / "docs" / "reference" / "removed.yaml").read_text()
    )
    return rows


def is_removed(line: str, rows: list[dict[str, str]]) -> bool:
    """Return whether a row names the command or option of a line."""
    command, _, option = line.partition(" | ")
    for row in rows:
        if row["kind"] == "command" and f"{command} ".startswith(f"{row['name']} "):
            return True
        if row["kind"] == "option":
            of, _, name = row["name"].rpartition(" ")
            if of == command and name in option.replace(",", " ").split():
                return True
    return False


def test_a_command_or_option_that_is_gone_is_listed_with_its_replacement() -> None:
    rows = removed()
    gone = lines_of("commands.txt") - commands() - lines_of("changed.txt")
    assert sorted(line for line in gone if not is_removed(line, rows)) == []


def test_what_is_listed_as_removed_is_gone() -> None:
    rows = [row for row in removed() if row["kind"] in ("command", "option")]
    assert sorted(line for line in commands() if is_removed(line, rows)) == []


def test_a_field_of_a_file_that_is_gone_is_listed() -> None:
    formats = [row["name"] for row in removed() if row["kind"] == "file-format"]
    gone = lines_of("files.txt") - files() - lines_of("changed.txt")
    assert sorted(line for line in gone if not line.startswith(tuple(formats))) == []


def test_what_is_new_is_listed() -> None:
    new = (commands() | files()) - lines_of("commands.txt") - lines_of("files.txt")
    assert sorted(new) == sorted(lines_of("added.txt"))


def test_each_row_says_what_replaces_it() -> None:
    for row in removed():
        assert row.keys() == {"kind", "name", "instead"}, row
        assert row["kind"] in KINDS, row
        assert row["name"].strip(), row
        assert row["instead"].strip(), row
