"""``compatgate k8s``: what a cluster is told and what is read of it, one module an action."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatgate.cli.parser import add_actions, run_action

if TYPE_CHECKING:
    import argparse

_EXAMPLES = """\
examples:
  compatgate k8s manifests --webhook | kubectl apply -f -
  kubectl get nodes -o json | compatgate k8s nodes --file -
  compatgate k8s audit --namespace ml-train --server https://gate.example
  compatgate k8s reconcile --cluster prod-eu
"""

ACTIONS = {
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command and its actions."""
    parser.epilog = _EXAMPLES
    add_actions(parser, ACTIONS)


def run(args: argparse.Namespace) -> int:
    """Do what was asked; the exit status is the action's."""
    return run_action(args, ACTIONS)
