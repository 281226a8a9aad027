"""Parse arguments like argparse, with one-line errors that suggest the nearest option."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn, Protocol

from compatgate.errors import BadInput
from compatgate.kit.cli.output import width_of
from compatgate.kit.cli.usage import add_usage

_PLACES = ("server", "bundle", "database")


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """A formatter that keeps examples as written; a fixed width spares importing shutil."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=width_of(sys.stdout) - 2)


class StoreOnce(argparse.Action):
    """Store a value once; argparse would silently replace it with a second one.

    Refuse empty values, too: usually they are unset variables of a script, and the check would
    silently be skipped.
    """

    def __call__(self, parser: Any, namespace: Any, values: Any, option: str | None = None) -> None:
        """Store the value, or report that the option was given twice."""
        _refuse_empty(parser, self, values, option)
        given = vars(namespace).setdefault("_given", set())
        if option and self.dest in given:
            parser.error(f"{option} is given twice")
        given.add(self.dest)
        setattr(namespace, self.dest, values)


class AppendValue(argparse._AppendAction):
    """Collect values; refuse empty ones."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option: str | None = None) -> None:
        """Add the value, or report that it is empty."""
        _refuse_empty(parser, self, values, option)
        super().__call__(parser, namespace, values, option)


class _Actions(argparse._SubParsersAction):  # type: ignore[type-arg]
    """The actions of a command; the help line of an action is also its description."""

    def add_parser(self, name: str, **settings: Any) -> Any:
        settings.setdefault("description", sentence(settings.get("help", "")))
        return super().add_parser(name, **settings)


def _refuse_empty(
    parser: argparse.ArgumentParser, action: argparse.Action, values: Any, option: str | None
) -> None:
    empty = "" in values if isinstance(values, list) else option and values == ""
    if empty and action.const != "":
        parser.error(f"{option or 'an argument'}: is empty; give a value, or omit the option")


class Parser(argparse.ArgumentParser):
    """A parser without abbreviations, whose examples keep their form."""

    def __init__(self, *, chosen: str = "", **settings: Any) -> None:
        self.chosen = chosen
        """Action that the command line names."""
        settings.setdefault("formatter_class", _Formatter)
        settings.setdefault("allow_abbrev", False)
        super().__init__(**settings)
        self.register("action", None, StoreOnce)
        self.register("action", "store", StoreOnce)
        self.register("action", "append", AppendValue)
        self.register("action", "parsers", _Actions)

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Parse arguments; for an unknown option suggest the nearest known one."""
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            from difflib import get_close_matches

            known = [name for name in _options(self) if name.startswith("--")]
            near = get_close_matches(unknown[0].partition("=")[0], known, n=1)
            hint = f", did you mean '{near[0]}'?" if near else ""
            self.error(f"unknown argument '{unknown[0]}'{hint}")
        return parsed

    def add_examples(self) -> None:
        """Put the examples of ``examples.txt`` before an epilog that has none."""
        from compatgate.resources import package_dir

        epilog = self.epilog or ""
        if f"{self.prog} " in epilog or epilog.rstrip().endswith(self.prog):
            return
        lines = (package_dir() / "kit/cli/examples.txt").read_text("utf-8").splitlines()
        if found := [f"  {line}" for line in lines if f"{self.prog} " in f"{line} "]:
            self.epilog = "\n".join(["examples:", *found, "", *filter(None, (epilog,))])

    def format_help(self) -> str:
        """Return the help, with examples."""
        self.add_examples()
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """Print the error on one line and exit with status 2."""
        print(f"error: {message} (see '{self.prog} --help')", file=sys.stderr)
        self.exit(2)


class Command(Protocol):
    """The interface of a command, an action, and a command with actions."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the options."""

    def run(self, args: argparse.Namespace) -> int:
        """Run the command; return the exit status."""


def load_command(code: str) -> Command:
    """Import a command: the object ``run`` of a module below `compatgate`, or ``module:name``."""
    module, _, name = code.partition(":")
    found: Command = getattr(import_module(f"compatgate.{module}"), name or "run")
    return found


def add_overlays(group: argparse._ActionsContainer) -> None:
    """Add the option for overlays."""
    usage = """\
--facts FILE|DIR ...  overlay facts file or folder (default: $COMPATGATE_FACTS); may be repeated
"""
    add_usage(group, usage, facts={"default": None})


def server_of(args: argparse.Namespace) -> str | None:
    """Return the gate's URL from options or environment; None if an option names another place."""
    given = [f"--{name}" for name in _PLACES if getattr(args, name, None)]
    if len(given) > 1:
        raise BadInput(f"{' and '.join(given)} cannot be used together", hint="choose one")
    return (args.server if given else os.environ.get("COMPATGATE_SERVER")) or None


def sentence(text: str) -> str:
    """Return a line of help as a sentence."""
    return f"{text[:1].upper()}{text[1:].removesuffix('.')}."


def _options(parser: argparse.ArgumentParser) -> list[str]:
    found = list(parser._option_string_actions)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                found += _options(child)
    return found
