"""``compatgate canary``: canary runs and what is made of them, one module an action."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatgate.cli.parser import add_actions, run_action

if TYPE_CHECKING:
    import argparse

_EXAMPLES = """\
examples:
  compatgate canary run --suite smoke --target prod-a100 --stack cuda=12.4,torch=2.4.1+cu124
  compatgate canary list --state active
  compatgate canary baselines list --state proposed
  compatgate canary judge before.jsonl after.jsonl
  compatgate canary lint ./our-workloads
"""

ACTIONS = {
    "run": ("compatgate.cli.canary.start", "run a suite for a target's stack"),
    "list": ("compatgate.cli.canary.list_", "list runs"),
    "show": ("compatgate.cli.canary.show", "show a run and its steps"),
    "logs": ("compatgate.cli.canary.logs", "print what a run's steps printed"),
    "cancel": ("compatgate.cli.canary.cancel", "end runs"),
    "rerun": ("compatgate.cli.canary.rerun", "queue a run that has ended again"),
    "sample": ("compatgate.cli.canary.sample", "keep what a run measured as files of data"),
    "hosts": ("compatgate.cli.canary.hosts", "list the staging hosts that workers serve"),
    "baselines": (
        "compatgate.cli.canary.baselines",
        "list, show, decide on, export and import baselines",
    ),
    "drift": ("compatgate.cli.canary.drift", "compare what the hosts' runs have measured"),
    "judge": ("compatgate.cli.canary.judge", "judge two files of measurements"),
    "fetch": ("compatgate.cli.canary.fetch", "copy the workload that an image brings"),
    "lint": ("compatgate.cli.canary.lint", "check workloads without running them"),
    "read": ("compatgate.cli.canary.read", "show what an adapter finds in a tool's output"),
    "suites": ("compatgate.cli.canary.suites", "list suites of workloads"),
    "workloads": ("compatgate.cli.canary.workloads", "list workloads, or show one"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command and its actions."""
    parser.epilog = _EXAMPLES
    add_actions(parser, ACTIONS)


def run(args: argparse.Namespace) -> int:
    """Do what was asked; the exit status is the action's."""
    return run_action(args, ACTIONS)
