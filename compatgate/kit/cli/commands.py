"""Derive commands from operations: options from arguments, a table from columns.

A row of a command's table names an operation and what differs from its declaration: names of
options, help, columns. What an operation cannot say is a function beside the table.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from compatgate.errors import BadInput, CompatgateError
from compatgate.kit.cli.options import (
    add_authorship,
    add_database,
    add_format,
    add_limit,
    read_moment,
    reason_of,
)
from compatgate.kit.cli.output import format_json_time, print_json, print_table
from compatgate.kit.cli.parser import add_server
from compatgate.kit.operations import Argument, Declared, load_operations

Body = dict[str, Any]
Cell = str | Callable[[Body], object]
"""A member of an answer, or a function of the answer."""
YES_NO = {"yes": True, "no": False, None: None}
_DEST = "argument_"
"""Prefix of values, so that no argument takes the place of another option."""


class Option(NamedTuple):
    """An option for an argument, where it differs from the declaration.

    Attributes:
        argument: of the operation.
        flag: ``--scope``; empty: the argument's name.
        help: instead of the API's description.
        metavar: name of the value.
        form: a list is repeated or separated by commas; a truth value is given as ``yes`` or
            ``no``, is true where the option stands (``switch``), or true unless it stands.
        required: of the command, where the operation could do without.
        choices: instead of the declared ones; empty: none are listed.
    """

    argument: str
    flag: str = ""
    help: str = ""
    metavar: str = ""
    form: Literal["", "repeat", "commas", "yes-no", "switch", "unless"] = ""
    required: bool | None = None
    choices: Sequence[str] | None = None


class Row(NamedTuple):
    """A command that asks one operation.

    Attributes:
        action: name of the command in its group.
        operation: name of the operation.
        options: in the order of the help; None: one for each argument.
        columns: heading to cell, for a list.
        empty: text in place of an empty table.
        text: returns one answer as text; None: the answer is printed as JSON.
        as_json: returns what ``--format json`` prints of one answer.
        status: returns the exit status of one answer; None: it is 0.
        reason: of a change where ``--reason`` states none, ``target delete {name}``.
        make: an SQLite file that is not there is made.
        extend: adds options that are not of the operation.
    """

    action: str
    operation: str
    help: str
    options: Sequence[Option] | None = None
    columns: Mapping[str, Cell] = {}
    empty: str = "nothing yet"
    text: Callable[[Body], str] | None = None
    as_json: Callable[[Body], Any] | None = None
    epilog: str = ""
    status: Callable[[Body], int] | None = None
    reason: str = ""
    make: bool = False
    extend: Callable[[argparse.ArgumentParser], None] | None = None

    @property
    def declared(self) -> Declared:
        """Return the operation."""
        return load_operations()[self.operation]

    def pairs(self) -> Iterator[tuple[Option, Argument]]:
        """Yield the options with their arguments."""
        arguments = {one.name: one for one in self.declared.arguments}
        for option in map(Option, arguments) if self.options is None else self.options:
            yield option, arguments[option.argument]


def declared_rows(group: str) -> list[Row]:
    """Return the commands of a group that routes declare, ``command="nodes racks"``."""
    operations = load_operations().values()
    return [_declared_row(one, group) for one in operations if one.command.startswith(f"{group} ")]


def _declared_row(declared: Declared, group: str) -> Row:
    listed = declared.form == "pages"
    return Row(
        action=declared.command.removeprefix(f"{group} "),
        operation=declared.name,
        help=declared.about.partition("\n")[0].rstrip("."),
        columns={name.replace("_", " "): name for name in declared.columns} if listed else {},
        text=None if listed else lambda answer: format_members(answer, declared.columns),
    )


def find_row(rows: Iterable[Row], action: str) -> Row:
    """Return the row of an action."""
    return next(row for row in rows if row.action == action)


def add_rows(actions: Any, rows: Sequence[Row]) -> None:
    """Add a command for each row; each names the gate and the output's format."""
    for row in rows:
        parser = actions.add_parser(row.action, help=row.help)
        parser.epilog = row.epilog or None
        for option, argument in row.pairs():
            _add_option(parser, option, argument)
        if row.reason:
            add_authorship(parser)
        if row.extend:
            row.extend(parser)
        if row.declared.form == "pages":
            add_limit(parser)
        add_server(parser)
        add_database(parser)
        add_format(parser)


def _add_option(parser: argparse.ArgumentParser, option: Option, argument: Argument) -> None:
    flag, form = _flag(option, argument), _form(option, argument)
    about = option.help or argument.about
    dest = _DEST + argument.name
    if form in ("switch", "unless"):
        parser.add_argument(flag, dest=dest, action="store_true", help=about)
        return
    choices = argument.choices if option.choices is None else option.choices
    settings: dict[str, Any] = {"help": about}
    if form == "yes-no":
        settings["choices"] = ("yes", "no")
    elif choices and form != "commas":
        settings["choices"] = choices
    if option.metavar or not settings.get("choices"):
        settings["metavar"] = option.metavar or flag.lstrip("-").replace("-", "_").upper()
    if argument.kind == "number":
        settings["type"] = int
    if form == "repeat":
        settings["action"] = "append"
    if flag.startswith("-"):
        needed = argument.required if option.required is None else option.required
        parser.add_argument(flag, dest=dest, required=needed, **settings)
    else:
        parser.add_argument(dest, **settings)


def _flag(option: Option, argument: Argument) -> str:
    """Return the name of an option; an argument of the path has a place instead."""
    if option.flag:
        return option.flag
    return argument.name if argument.place == "path" else f"--{argument.name.replace('_', '-')}"


def _form(option: Option, argument: Argument) -> str:
    return option.form or {"flag": "switch", "list": "repeat"}.get(argument.kind, "")


def values_of(args: argparse.Namespace, row: Row) -> Body:
    """Return the arguments of an operation from the options of its command."""
    values = {}
    for option, argument in row.pairs():
        value = getattr(args, _DEST + argument.name)
        match _form(option, argument):
            case "switch":
                value = value or None
            case "unless":
                value = None if value else True
            case "yes-no":
                value = YES_NO[value]
            case "commas" if value is not None:
                value = _split(value, _flag(option, argument), argument.choices)
        if argument.kind in ("since", "until"):
            value = read_moment(value, _flag(option, argument), end_of_day=argument.kind == "until")
        values[argument.name] = value
    if row.reason:
        values["reason"] = reason_of(args, row.reason.format(**values))
    return values


def _split(text: str, flag: str, choices: Sequence[str]) -> list[str]:
    """Return the parts of a list; each is one of the choices, if there are some."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    hint = f"of {', '.join(choices)}" if choices else ""
    if not parts:
        raise BadInput("names nothing", field=flag, value=text, hint=hint)
    for part in parts:
        if choices and part not in choices:
            raise BadInput("is unknown", field=flag, value=part, hint=hint)
    return parts


def name_option(error: CompatgateError, row: Row) -> None:
    """Have an error about an argument name its option."""
    for option, argument in row.pairs():
        flag = _flag(option, argument)
        if flag.startswith("-") and error.field and error.field.startswith(argument.key):
            error.field = flag + error.field.removeprefix(argument.key)
            return


def print_answer(form: str, row: Row, answer: Any) -> int:
    """Print the answer of an operation; return the exit status."""
    if form == "json" or not (row.columns or row.text):
        print_json(row.as_json(answer) if row.as_json else answer)
    elif row.text:
        print(row.text(answer))
    else:
        print_rows(answer, row.columns, row.empty)
    return row.status(answer) if row.status else 0


def print_rows(items: Sequence[Body], columns: Mapping[str, Cell], empty: str) -> None:
    """Print a table of items."""
    rows = [[_cell(item, cell) for cell in columns.values()] for item in items]
    print_table((*columns,), rows, empty=empty)


def _cell(item: Body, cell: Cell) -> object:
    value = cell(item) if callable(cell) else item.get(cell)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else value


def time_of(member: str, otherwise: str | None = None) -> Cell:
    """Return a cell for a time, to the second."""
    return lambda item: format_json_time(item[member]) or otherwise


def format_members(answer: Body, members: Sequence[str]) -> str:
    """Return members of an answer as lines, all where none are named."""
    names = members or tuple(answer)
    width = max(map(len, names))
    return "\n".join(f"{name:<{width}}  {_cell(answer, name)}" for name in names)
