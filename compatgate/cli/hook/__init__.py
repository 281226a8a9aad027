"""``compatgate hook``: this side of the hooks of deploy tools, one module an action."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

HELP = "answer Terraform, and sign requests to webhooks"

ACTIONS: dict[str, tuple[str, str]] = {
    "terraform": ("compatgate.cli.hook.terraform", "answer Terraform's external data source"),
    "sign": ("compatgate.cli.hook.sign", "print the header that signs a request to a webhook"),
}
"""Name to module and help; a module has ``add_arguments`` and ``run``, and imports late."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command and its actions."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, (module, help_text) in ACTIONS.items():
        description = f"{help_text[:1].upper()}{help_text[1:]}."
        action = actions.add_parser(name, help=help_text, description=description)
        import_module(module).add_arguments(action)


def run(args: argparse.Namespace) -> int:
    """Do what was asked; the exit status is the action's."""
    status: int = import_module(ACTIONS[args.action][0]).run(args)
    return status
