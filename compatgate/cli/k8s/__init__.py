"""``compatgate k8s``: what a cluster is told and what is read of it, one module an action."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

HELP = "look after a Kubernetes cluster: manifests, nodes, audit of what runs"

ACTIONS: dict[str, tuple[str, str]] = {
    "manifests": ("compatgate.cli.k8s.manifests", "print the objects that compatgate needs"),
    "nodes": ("compatgate.cli.k8s.nodes", "read the cluster's nodes; report them, suggest taints"),
    "audit": (
        "compatgate.cli.k8s.audit",
        "decide again about the GPU pods that run, and write policy reports",
    ),
    "reconcile": (
        "compatgate.cli.k8s.reconcile",
        "label nodes by whether their driver is blessed, and taint those where it is not",
    ),
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
