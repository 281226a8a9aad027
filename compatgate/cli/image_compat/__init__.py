"""``compatgate image-compat``: NFD's image-compatibility specs, one module an action."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatgate.cli.parser import add_actions, run_action

if TYPE_CHECKING:
    import argparse

_EXAMPLES = """\
examples:
  compatgate inspect registry.example/team/app:1.2 --format nfd
  compatgate image-compat push registry.example/team/app:1.2
  nfd compat validate-node --image registry.example/team/app:1.2
  compatgate image-compat pull registry.example/team/app:1.2
  compatgate image-compat check spec.yaml --pool driver=580.82.07,gpu=H100-SXM5-80GB
"""

ACTIONS = {
    "push": (
        "compatgate.cli.image_compat.push",
        "attach a spec to an image in its registry: that of its stack, or a file's",
    ),
    "pull": ("compatgate.cli.image_compat.pull", "print the newest spec that is attached"),
    "check": ("compatgate.cli.image_compat.check", "say which rules of a spec hold on a pool"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command and its actions."""
    parser.epilog = _EXAMPLES
    add_actions(parser, ACTIONS)


def run(args: argparse.Namespace) -> int:
    """Do what was asked; the exit status is the action's."""
    return run_action(args, ACTIONS)
