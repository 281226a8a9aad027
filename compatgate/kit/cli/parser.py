"""Parse arguments like argparse, with one-line errors that suggest the nearest option."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

from compatgate.errors import BadInput
from compatgate.kit.cli.terminal import width_of

MOST = 1024
"""Maximum number of processes, threads or concurrent runs."""
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

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Store the value, or report that the option was given twice."""
        _refuse_empty(parser, self, values, option_string)
        given = vars(namespace).setdefault("_given", set())
        if option_string and self.dest in given:
            parser.error(f"{option_string} is given twice")
        given.add(self.dest)
        setattr(namespace, self.dest, values)


class AppendValue(argparse._AppendAction):
    """Collect values; refuse empty ones."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Add the value, or report that it is empty."""
        _refuse_empty(parser, self, values, option_string)
        super().__call__(parser, namespace, values, option_string)


class _Actions(argparse._SubParsersAction):  # type: ignore[type-arg]
    """The actions of a command; the help line of an action is also its description."""

    def add_parser(self, name: str, **settings: Any) -> Any:
        """Add an action."""
        settings.setdefault("description", sentence(settings.get("help", "")))
        return super().add_parser(name, **settings)


def _refuse_empty(
    parser: argparse.ArgumentParser, action: argparse.Action, values: Any, option: str | None
) -> None:
    empty = "" in values if isinstance(values, list) else option and values == ""
    if empty and action.const != "":
        parser.error(f"{option or 'an argument'}: is empty; give a value, or omit the option")


def bounded_count(text: str) -> int:
    """Read a number from 1 to `MOST`; the type of an option."""
    if not text.isdecimal() or not 1 <= int(text) <= MOST:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from 1 to {MOST}")
    return int(text)


def positive_count(text: str) -> int:
    """Read a number from 1; the type of an option that limits a list."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from 1")
    return int(text)


class Parser(argparse.ArgumentParser):
    """A parser without abbreviations, whose examples keep their form."""

    def __init__(self, **settings: Any) -> None:
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
            self.error(f"unknown argument '{unknown[0]}'{self._near(unknown[0])}")
        return parsed

    def add_examples(self) -> None:
        """Put examples of the action before an epilog that has none."""
        from compatgate.kit.cli.examples import list_examples

        examples = list_examples(self.prog, self.epilog or "")
        self.epilog = "\n".join(filter(None, (examples, self.epilog)))

    def format_help(self) -> str:
        """Return the help, with examples."""
        self.add_examples()
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """Print the error on one line and exit with status 2."""
        print(f"error: {message} (see '{self.prog} --help')", file=sys.stderr)
        self.exit(2)

    def _near(self, argument: str) -> str:
        from difflib import get_close_matches

        option = argument.partition("=")[0]
        known = [name for name in _options(self) if name.startswith("--")]
        near = get_close_matches(option, known, n=1)
        return f", did you mean '{near[0]}'?" if near else ""


Actions = Mapping[str, tuple[str, str]]
"""Name to code and help. Code is ``module`` or ``module:action``; see `load_command`."""


class Command(NamedTuple):
    """The functions of a command or an action."""

    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def load_command(code: str) -> Command:
    """Import a command.

    ``code`` is a module that has ``add_arguments`` and ``run``, or ``ACTIONS`` and ``EXAMPLES``; or
    ``module:action``, which has ``add_action_arguments`` and ``run_action``.
    """
    module_name, _, action = code.partition(":")
    module = import_module(module_name)
    if action:
        return Command(getattr(module, f"add_{action}_arguments"), getattr(module, f"run_{action}"))
    if hasattr(module, "ACTIONS"):
        actions: Actions = module.ACTIONS
        return Command(
            lambda parser: _add_actions(parser, actions, module.EXAMPLES),
            lambda args: load_command(actions[args.action][0]).run(args),
        )
    return Command(module.add_arguments, module.run)


def _add_actions(parser: argparse.ArgumentParser, actions: Actions, examples: str) -> None:
    parser.epilog = examples
    group = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, (code, help_text) in actions.items():
        load_command(code).add_arguments(group.add_parser(name, help=help_text))


def add_server(
    group: argparse._ActionsContainer, *, what: str = "", timeout_s: float | None = None
) -> None:
    """Add the options that name a gate."""
    url = f"URL of the gate{f', for {what}' if what else ''} (default: $COMPATGATE_SERVER)"
    group.add_argument("--server", metavar="URL", help=url)
    group.add_argument("--token", metavar="TOKEN", help="access token (default: $COMPATGATE_TOKEN)")
    if timeout_s is not None:
        group.add_argument(
            "--timeout",
            metavar="SECONDS",
            type=float,
            default=timeout_s,
            help=f"timeout of the gate in seconds (default: {timeout_s:g})",
        )


def add_overlays(group: argparse._ActionsContainer) -> None:
    """Add the option for overlays."""
    group.add_argument(
        "--facts",
        metavar="FILE|DIR",
        action="append",
        help="overlay facts file or folder (default: $COMPATGATE_FACTS); may be repeated",
    )


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
    """Return every option of a parser and its sub-parsers."""
    found = list(parser._option_string_actions)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                found += _options(child)
    return found
