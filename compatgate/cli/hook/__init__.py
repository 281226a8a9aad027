"""``compatgate hook``: this side of the hooks of deploy tools, one module an action."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatgate.cli.parser import add_actions, run_action

if TYPE_CHECKING:
    import argparse

HELP = "answer Terraform, and sign requests to webhooks"

ACTIONS = {
    "terraform": ("compatgate.cli.hook.terraform", "answer Terraform's external data source"),
    "sign": ("compatgate.cli.hook.sign", "print the header that signs a request to a webhook"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command and its actions."""
    add_actions(parser, ACTIONS)


def run(args: argparse.Namespace) -> int:
    """Do what was asked; the exit status is the action's."""
    return run_action(args, ACTIONS)
