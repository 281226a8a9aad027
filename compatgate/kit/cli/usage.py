"""Declare a command: its options as the help shows them, above the function that runs it.

Each line of a usage has an option or argument and its help, with two blanks between. Further lines
of a help are indented. A line that ends with a colon begins a group.

    file: FILE|-             argument with another name in Python; in brackets: may be missing
    --host H ...             option that may be repeated
    --wait                   option without a value
    --top N = 20             number from 1, with a default, which is added to the help
    --better {lower,higher}  option with choices
    --attach [IMAGE]         option whose value may be missing
    | --detach               alternative to the option above

A command with many settings lists `Setting` objects in a class, whose attributes are their values:
option, variable, reading and help of each stand in one place. Values are read when they are used,
so that ``--help`` imports no service.
"""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

Part = str | Callable[[Any], None]
"""A usage, or a function that adds options which several commands share."""
Run = Callable[[argparse.Namespace], int]
Settings = Mapping[str, Any]
"""Arguments of ``add_argument``."""
_DEST = re.compile(r"(\w+): ")
_FLAGS = re.compile(r"-{1,2}[a-z][a-z-]*(, --[a-z][a-z-]*)?( |$)")
_VARIABLE = re.compile(r"\(default: \$(\w+)")
_REQUIRED = " (required)"
_NARGS = {(False, False): None, (True, False): "?", (False, True): "+", (True, True): "*"}
"""Number of values of an argument, by whether it is optional and repeated."""
T = TypeVar("T")
ABOVE_0 = math.ulp(0.0)
"""Least number of seconds where none is not allowed."""


class Action(NamedTuple):
    """A command, or an action of a command; ``settings`` are what its usage cannot state."""

    help: str
    run: Run
    parts: Sequence[Part]
    epilog: str
    settings: Mapping[str, Settings]

    def __call__(self, args: argparse.Namespace) -> int:
        """Run the command; return the exit status."""
        return self.run(args)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the options."""
        parser.epilog = self.epilog or None
        add_parts(parser, self.parts, self.settings)


def action(
    help_text: str, /, *parts: Part, epilog: str = "", **settings: Settings
) -> Callable[[Run], Action]:
    """Declare an action, which its group names; the function below the declaration runs it."""
    return lambda run: Action(help_text, run, parts, epilog, settings)


def command(*parts: Part, epilog: str, **settings: Settings) -> Callable[[Run], Action]:
    """Declare a command; `compatgate.cli.main.COMMANDS` has its name and help."""
    return action("", *parts, epilog=epilog, **settings)


def titled(title: str, *parts: Part, **settings: Settings) -> Part:
    """Return a group of options for the help."""
    return lambda parser: add_parts(parser.add_argument_group(title), parts, settings)


def add_parts(
    group: Any, parts: Sequence[Part], settings: Mapping[str, Settings] | None = None
) -> None:
    """Add options."""
    for part in parts:
        if isinstance(part, str):
            add_usage(group, part, **(settings or {}))
        else:
            part(group)


def add_usage(group: argparse._ActionsContainer, usage: str, **settings: Settings) -> None:
    """Add the options and arguments of a usage."""
    place = alternatives = group
    lines = list(_split_lines(usage))
    for (names, about), (after, _) in zip(lines, [*lines[1:], ("", "")], strict=False):
        if names.endswith(":"):
            place = group.add_argument_group(names[:-1])
            continue
        name, flags, keywords = _read_names(names)
        own = settings.get(name, {})
        about = about or own.get("help", "")
        if keywords.get("default") and "(default:" not in about:
            about += " (default: %(default)s)"
        choices = {"choices": keywords["choices"]} if "choices" in keywords else {}
        keywords |= {**own, "help": about, **choices}
        if not flags[0].startswith("-"):
            keywords.pop("required", None)
        if not names.startswith("| "):
            alternatives = place
            if after.startswith("| "):
                is_required = keywords.pop("required", False)
                alternatives = place.add_mutually_exclusive_group(required=is_required)
        alternatives.add_argument(*flags, **keywords)


def read_usage(usage: str) -> Iterator[tuple[str, list[str], dict[str, Any], str]]:
    """Yield the name in Python, the flags, the settings and the help of each option."""
    for names, about in _split_lines(usage):
        if not names.endswith(":"):
            yield (*_read_names(names), about)


def bounded(what: str, least: float, most: float = math.inf) -> Callable[[str], int]:
    """Return the type of an option whose value is a whole number; errors say ``what`` it is."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"'{text}' is not {what}")
        return int(text)

    return read


def bounded_seconds(what: str, least: float, most: float) -> Callable[[str], float]:
    """Return the type of an option whose value is a time in seconds."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds{what}")
        return value

    return read


POSITIVE = bounded("a number from 1", 1)
COUNT = bounded("a number from 1 to 1024", 1, 1024)
"""Number of processes, threads or concurrent runs."""
PORT = bounded("a port, 0 to 65535", 0, 65535)


def _split_lines(usage: str) -> Iterator[tuple[str, str]]:
    for text in re.split(r"\n(?=\S)", usage.strip()):
        names, _, about = re.sub(r"\n\s*", "  ", text).partition("  ")
        if names:
            yield names, " ".join(about.split())


def _read_names(names: str) -> tuple[str, list[str], dict[str, Any]]:
    required = {"required": True} if names.endswith(_REQUIRED) else {}
    names, _, default = names.removeprefix("| ").removesuffix(_REQUIRED).partition(" = ")
    is_optional = names.startswith("[")
    names = names[1:-1] if is_optional else names
    stated = _DEST.match(names)
    start = stated.end() if stated else 0
    flags = _FLAGS.match(names, start)
    value = names[flags.end() if flags else start :]
    is_repeated = value.endswith(" ...")
    value = value.removesuffix(" ...")
    may_be_missing = value.startswith("[") and value.endswith("]")
    value = value[1:-1] if may_be_missing else value
    keywords: dict[str, Any] = {"default": default} if default else {}
    if value.startswith("{"):
        keywords |= {"choices": value[1:-1].split(",")} if value != "{}" else {}
    elif value:
        keywords["metavar"] = value
    if value == "N":
        keywords["type"] = POSITIVE
    if not flags:
        name = stated[1] if stated else value.lower()
        return name, [name], {**keywords, "nargs": _NARGS[is_optional, is_repeated]}
    words = flags[0].strip().split(", ")
    name = stated[1] if stated else words[-1].lstrip("-").replace("-", "_")
    if not value:
        keywords["action"] = "store_true"
    elif is_repeated:
        keywords |= {"action": "append", "default": []}
    elif may_be_missing:
        keywords["nargs"] = "?"
    return name, words, {"dest": name, **keywords, **required}


class Heading(NamedTuple):
    """A group of options in the help; empty: those without a group."""

    title: str


class Shared(NamedTuple):
    """Options that other commands have as well; their values are attributes of the arguments."""

    part: Part


class Setting(Generic[T]):
    """A setting: its option, else its variable, as its reader reads it.

    ``read`` takes the text, or None, and the source's name for errors; ``type`` reads the text
    while the command line is parsed, instead. ``variable`` is the first that the help names.
    """

    def __init__(
        self,
        usage: str,
        read: Callable[[Any, str], T] = lambda value, field: value,
        *,
        type: Callable[[str], T] | None = None,  # noqa: A002 - as argparse names it
        variable: str | None = None,
    ) -> None:
        ((self.name, (self.option,), _, about),) = read_usage(usage)
        self._usage = usage
        self._read = read
        named = _VARIABLE.search(about)
        self._variable = variable if variable is not None else named[1] if named else ""
        self._argparse = {"type": type} if type else {}

    def add(self, group: argparse._ActionsContainer) -> None:
        """Add the option."""
        add_usage(group, self._usage, **{self.name: self._argparse})

    def __get__(self, settings: CommandSettings, owner: object = None) -> T:
        """Return the value."""
        stated = getattr(settings.args, self.name)
        if not stated and self._variable:
            return self._read(os.environ.get(self._variable) or None, self._variable)
        return self._read(stated, self.option)


class Repeated(Setting[tuple[T, ...]]):
    """A setting that may be repeated; the items of the variable, comma-separated, are added."""

    def __init__(
        self,
        usage: str,
        read: Callable[[Any, str], tuple[T, ...]] = lambda texts, field: tuple(texts),
        *,
        variable: str | None = None,
    ) -> None:
        super().__init__(usage, read, variable=variable)

    def __get__(self, settings: CommandSettings, owner: object = None) -> tuple[T, ...]:
        """Return the values."""
        items = os.environ.get(self._variable, "").split(",") if self._variable else []
        named = [item.strip() for item in items if item.strip()]
        stated = self._read(getattr(settings.args, self.name), self.option)
        return (*stated, *self._read(named, self._variable)) if named else stated


class CommandSettings:
    """The settings of one call of a command; a subclass declares them."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args

    @classmethod
    def add_to(cls, parser: argparse.ArgumentParser) -> None:
        """Add the option of every setting, each below its heading."""
        group: argparse._ActionsContainer = parser
        for item in vars(cls).values():
            if isinstance(item, Heading):
                group = parser.add_argument_group(item.title) if item.title else parser
            elif isinstance(item, Shared):
                add_parts(group, [item.part])
            elif isinstance(item, Setting):
                item.add(group)
