"""Derive commands from operations: options from arguments, a table from columns.

A row of a command's table names an operation, the options that it states better than the API does,
and what to print of the answer. What an operation cannot say is a function above the table.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

from compatgate.cli.gate import Client, Operations, gate_of
from compatgate.errors import BadInput, CompatgateError
from compatgate.gate_client import ask, ask_all
from compatgate.kit.cli.options import AUTHORSHIP, FORMAT, LIMIT, PLACE, read_moment, reason_of
from compatgate.kit.cli.output import format_cells, format_json_time, print_json
from compatgate.kit.cli.parser import load_command
from compatgate.kit.cli.usage import Action, Settings, add_usage, read_usage
from compatgate.kit.operations import Argument, Declared, load_operations

Body = dict[str, Any]
Cell = str | Callable[[Any], object]
"""A member of an answer, by its path, or a function of the answer; times have whole seconds."""
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)$")
_YES_NO = {"yes": True, "no": False, None: None}


class Option(NamedTuple):
    """An option of a row that is an argument of the operation; ``keywords`` are for `argparse`."""

    argument: Argument
    flag: str
    keywords: Settings

    @property
    def is_list_of_commas(self) -> bool:
        """Tell whether the value is a list, separated by commas."""
        return self.argument.kind == "list" and not ({"action", "nargs"} & self.keywords.keys())

    def read(self, value: Any) -> Any:
        """Return the value of the argument."""
        kind = self.argument.kind
        if self.argument.name == "stack" and isinstance(value, str):
            from compatgate.core.stack import parse_stack_text

            return parse_stack_text(value)
        if kind == "flag":
            return _YES_NO[value] if "choices" in self.keywords else value or None
        if kind in ("since", "until"):
            return read_moment(value, self.flag, end_of_day=kind == "until")
        if self.is_list_of_commas and value is not None:
            return _split(value, self.flag, self.argument.choices)
        return value or None if kind == "list" else value


class Row(NamedTuple):
    """A command that asks one operation, and prints a table of a list, or a text of one answer.

    Attributes:
        usage: options, of which those with the name of an argument are sent; ``{}`` stands for the
            declared choices, no help for that of the API, and the line ``...`` for every other
            argument.
        columns: heading to cell; ``items`` returns the lines, where they are not the answer's;
            ``empty`` is printed without any, else ``no upgrades`` for ``list_upgrades``.
        text: returns one answer as text; or a template, ``{id} is resolved``; or a function for
            each format. None: the answer is printed as JSON.
        as_json: returns what ``--format json`` prints of one answer.
        status: returns the exit status of an answer; None: it is 0.
        reason: of a change where ``--reason`` states none, ``target delete {name}``.
        make: an SQLite file that is not there is made.
        who: asks a database, for its audit log; None: ``--author``, else the user.
        member: of the answer, which stands for the whole.
        show: operation that is asked instead where the option for its path is stated.
        values: returns arguments of the operation that need more than an option.
        answer: returns the answer, where the command does more than ask once.
        form: option for the format of the answer.
        settings: of `argparse`, for options that are no arguments of the operation.
        limited: a list has the option ``--limit``.
        summary: line of help, in place of the operation's own.
    """

    operation: str
    usage: str = "..."
    columns: Mapping[str, Cell] = {}
    empty: str = ""
    text: Callable[[Body], str] | Mapping[str, Callable[[Body], str]] | str | None = None
    as_json: Callable[[Body], Any] | None = None
    epilog: str = ""
    status: Callable[[Any, argparse.Namespace], int] | None = None
    reason: str = ""
    make: bool = False
    who: str | None = None
    member: str = ""
    show: str = ""
    values: Callable[[argparse.Namespace], Body] | None = None
    answer: Callable[[argparse.Namespace], Any] | None = None
    items: Callable[[Sequence[Body], argparse.Namespace], Sequence[Body]] | None = None
    form: str = FORMAT
    settings: Mapping[str, Settings] = {}
    limited: bool = True
    summary: str = ""

    @property
    def declared(self) -> Declared:
        """Return the operation."""
        return load_operations()[self.operation]

    @property
    def help(self) -> str:
        """Return the line of help: the first sentence about the operation."""
        about = re.split(r"\.(?:\s|$)", self.declared.about, maxsplit=1)[0]
        return self.summary or f"{about[:1].lower()}{about[1:]}"

    def options(self) -> Iterator[Option]:
        """Yield the options that are arguments of the operation."""
        arguments = {one.name: one for one in self.declared.arguments}
        for name, flags, keywords, _ in read_usage(self._usage()):
            if name in arguments:
                yield Option(arguments[name], flags[-1], keywords)

    def _usage(self) -> str:
        """Return the usage with a line for each argument that ``...`` stands for."""
        own = re.sub(r"^\.\.\.$", "", self.usage, flags=re.MULTILINE)
        if own == self.usage:
            return own
        taken = {"reason"} if self.reason else set()
        taken |= {name for name, *_ in read_usage(own)}
        others = [one for one in self.declared.arguments if one.place != "header"]
        return "\n".join([own, *(_name_option(one) for one in others if one.name not in taken)])

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the options, and those that name the gate and the form of its answer."""
        parser.epilog = self.epilog or None
        path = self.declared.path
        settings = {one.argument.name: _settings(one, path) for one in self.options()}
        add_usage(parser, self._usage(), **{**settings, **self.settings})
        if self.reason:
            add_usage(parser, AUTHORSHIP)
        if self.declared.form == "pages" and self.limited:
            add_usage(parser, LIMIT)
        add_usage(parser, PLACE)
        add_usage(parser, self.form)

    def run(self, args: argparse.Namespace) -> int:
        """Run the command; return the exit status."""
        answer = (self.answer or self.ask)(args)
        if self.items and args.format != "json":
            print_row(args.format, self, self.items(answer, args))
        else:
            print_row(args.format, self, answer)
        return self.status(answer, args) if self.status else 0

    def ask(self, args: argparse.Namespace, gate: Client | None = None) -> Any:
        """Return the answer of the operation; an error about an argument names its option."""
        if self.show and getattr(args, load_operations()[self.show].arguments[0].name):
            return self._replace(operation=self.show, show="", values=None).ask(args, gate)
        values = values_of(args, self)
        connected = nullcontext(gate) if gate else gate_of(args, name=self.who, make=self.make)
        try:
            with connected as own:
                operation: Any = getattr(Operations, self.operation)
                if self.declared.form == "pages":
                    return ask_all(own, getattr(args, "limit", None), operation, **values)
                if isinstance(several := values.get("id"), list):
                    return [ask(own, operation, **{**values, "id": one}) for one in several]
                answer = ask(own, operation, **values)
                return answer[self.member] if self.member else answer
        except CompatgateError as error:
            name_option(error, self)
            raise


class Group(NamedTuple):
    """A command with actions by name; a text names the place of one in another module."""

    actions: Mapping[str, Row | Action | Group | str]
    epilog: str = ""
    help: str = ""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the action that the command line names, else all; only these are imported."""
        parser.epilog = self.epilog or None
        chosen = getattr(parser, "chosen", "")
        actions = parser.add_subparsers(required=True, metavar="ACTION")
        for name in [chosen] if chosen in self.actions else self.actions:
            one: Any = self.actions[name]
            one = load_command(one) if isinstance(one, str) else one
            child = actions.add_parser(name, help=one.help)
            one.add_arguments(child)
            if not isinstance(one, Group):
                child.set_defaults(_run=one.run)

    def run(self, args: argparse.Namespace) -> int:
        """Run the chosen action; return the exit status."""
        status: int = args._run(args)
        return status


def declared_rows(group: str) -> dict[str, Row]:
    """Return the commands of a group that routes declare, ``command="nodes racks"``."""
    return {
        one.command.removeprefix(f"{group} "): Row(
            one.name,
            columns=columns(*one.columns),
            text=partial(format_members, members=one.columns),
        )
        for one in load_operations().values()
        if one.command.startswith(f"{group} ")
    }


def _name_option(argument: Argument) -> str:
    """Return the usage of an argument for which a row has none."""
    dashed = f"--{argument.name.replace('_', '-')}"
    if argument.place == "path":
        return argument.name.upper()
    if argument.kind == "flag":
        return dashed
    value = "{}" if argument.choices else argument.name.upper()
    default = f" = {argument.default}" if argument.default not in (None, "") else ""
    return f"{dashed} {value}{' ...' if argument.kind == 'list' else ''}{default}"


def _settings(option: Option, path: str) -> Settings:
    argument = option.argument
    about = argument.about.removeprefix("true: ").replace("`", "") or argument.name
    if argument.place == "path" and not argument.about:  # of what the path names before it
        things = path.partition(f"/{{{argument.key}}}")[0].rpartition("/")[2]
        about = f"{argument.name} of the {re.sub('ie$', 'y', things.removesuffix('s'))}"
    elif argument.place == "query" and not argument.about:
        about = f"only this {argument.name.replace('_', ' ')}"
    settings: dict[str, Any] = {"help": about, "required": argument.required}
    if argument.kind == "number":
        settings["type"] = int
    if argument.choices and not option.is_list_of_commas and "choices" not in option.keywords:
        settings["choices"] = argument.choices
    return settings


def values_of(args: argparse.Namespace, row: Row) -> Body:
    """Return the arguments of an operation from the options of its command."""
    values = {
        one.argument.name: one.read(getattr(args, one.argument.name)) for one in row.options()
    }
    if row.values:
        values |= row.values(args)
    if row.reason:
        values["reason"] = reason_of(args, row.reason.format(**vars(args)))
    return values


def _split(text: str, flag: str, choices: Sequence[str]) -> list[str]:
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
    for argument, flag, _ in row.options():
        if flag.startswith("-") and error.field and error.field.startswith(argument.key):
            error.field = flag + error.field.removeprefix(argument.key)
            return


def print_row(form: str, row: Row, answer: Any) -> None:
    """Print a list as a table, one answer as text, or both as JSON."""
    listed = isinstance(answer, list)
    if form == "json" or not (row.columns if listed else row.text):
        print_json(row.as_json(answer) if row.as_json else answer)
    elif row.text and not listed:
        text = row.text[form] if isinstance(row.text, Mapping) else row.text
        print(text.format_map(answer) if isinstance(text, str) else text(answer))
    else:
        nothing = f"no {row.operation.removeprefix('list_').replace('_', ' ')}"
        print(format_rows(answer, row.columns) if answer else row.empty or nothing)


def format_rows(items: Iterable[Any], columns: Mapping[str, Cell]) -> str:
    """Return a table of items, a line for each."""
    rows = [[_cell(item, cell) for cell in columns.values()] for item in items]
    return format_cells([name.upper() for name in columns], rows)


def columns(*names: str | tuple[str, Cell]) -> dict[str, Cell]:
    """Return columns by heading.

    ``asked_by`` is headed by the member that it shows, ``node: name`` is not. A path leads to a
    member of a member, ``spec.targets``, or of each member of a list.
    """
    pairs = (one if isinstance(one, tuple) else one.rpartition(": ")[::2] for one in names)
    return {
        heading or str(cell).rpartition(".")[2].replace("_", " "): cell for heading, cell in pairs
    }


def _member(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else getattr(value, name)


def _cell(item: Any, cell: Cell) -> object:
    value: Any = item
    if callable(cell):
        value = cell(item)
    else:
        for name in cell.split("."):
            if isinstance(value, list):
                value = [_member(one, name) for one in value]
            else:
                value = value and _member(value, name)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        value = [f"{name} {text}" for name, text in value.items()]
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return format_json_time(value) if isinstance(value, str) and _TIME.match(value) else value


def format_members(answer: Body, members: Sequence[str]) -> str:
    """Return members of an answer as lines, all where none are named."""
    names = members or tuple(answer)
    width = max(map(len, names))
    return "\n".join(f"{name:<{width}}  {_cell(answer, name)}" for name in names)
