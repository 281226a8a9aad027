"""``compatgate image-compat``: NFD's image-compatibility specs, one module an action."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

HELP = "attach what an image needs of a node to it, for NFD, and read it back"

_EXAMPLES = """\
examples:
  compatgate inspect registry.example/team/app:1.2 --format nfd
  compatgate image-compat push registry.example/team/app:1.2
  nfd compat validate-node --image registry.example/team/app:1.2
  compatgate image-compat pull registry.example/team/app:1.2
  compatgate image-compat check spec.yaml --pool driver=580.82.07,gpu=H100-SXM5-80GB
"""

ACTIONS: dict[str, tuple[str, str]] = {
    "push": (
        "compatgate.cli.image_compat.push",
        "attach a spec to an image in its registry: that of its stack, or a file's",
    ),
    "pull": ("compatgate.cli.image_compat.pull", "print the newest spec that is attached"),
    "check": ("compatgate.cli.image_compat.check", "say which rules of a spec hold on a pool"),
}
"""Name to module and help; a module has ``add_arguments`` and ``run``, and imports late."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command and its actions."""
    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, (module, help_text) in ACTIONS.items():
        description = f"{help_text[:1].upper()}{help_text[1:]}."
        action = actions.add_parser(name, help=help_text, description=description)
        import_module(module).add_arguments(action)


def run(args: argparse.Namespace) -> int:
    """Do what was asked; the exit status is the action's."""
    status: int = import_module(ACTIONS[args.action][0]).run(args)
    return status
