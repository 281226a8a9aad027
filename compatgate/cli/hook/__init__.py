"""``compatgate hook``: this side of the hooks of deploy tools, one module an action."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatgate.cli.parser import add_actions, run_action

if TYPE_CHECKING:
    import argparse

_EXAMPLES = """\
examples:
  echo '{"target": "prod-a100", "stack": "cuda=12.4"}' | compatgate hook terraform
  compatgate hook sign --secret ci=ci.key --url https://gate.example/hooks/generic question.json
"""

ACTIONS = {
    "terraform": ("compatgate.cli.hook.terraform", "answer Terraform's external data source"),
    "sign": ("compatgate.cli.hook.sign", "print the header that signs a request to a webhook"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command and its actions."""
    parser.epilog = _EXAMPLES
    add_actions(parser, ACTIONS)


def run(args: argparse.Namespace) -> int:
    """Do what was asked; the exit status is the action's."""
    return run_action(args, ACTIONS)
