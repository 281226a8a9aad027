"""Run ``compatgate canary``: canary runs, workloads and measurements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatgate.kit.cli.parser import add_actions, run_action

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
    "run": ("compatgate.service.runs.cli:start", "run a suite for a target's stack"),
    "list": ("compatgate.service.runs.cli:list", "list runs"),
    "show": ("compatgate.service.runs.cli:show", "show a run and its steps"),
    "logs": ("compatgate.service.runs.cli:logs", "print the logs of a run"),
    "cancel": ("compatgate.service.runs.cli:cancel", "cancel runs"),
    "rerun": ("compatgate.service.runs.cli:rerun", "requeue a finished run"),
    "sample": (
        "compatgate.cli.canary.samples:sample",
        "write the measurements of a run to sample files",
    ),
    "hosts": (
        "compatgate.service.runs.cli_hosts:hosts",
        "list the staging hosts that workers serve",
    ),
    "baselines": (
        "compatgate.service.baselines.cli",
        "list, show, decide on, export and import baselines",
    ),
    "drift": (
        "compatgate.service.runs.cli_hosts:drift",
        "compare measurements across hosts",
    ),
    "judge": ("compatgate.cli.canary.judge", "compare two files of measurements"),
    "fetch": ("compatgate.cli.canary.workloads:fetch", "copy the workload in an image"),
    "lint": ("compatgate.cli.canary.workloads:lint", "check workloads without running them"),
    "read": ("compatgate.cli.canary.samples:read", "parse the output of a tool with an adapter"),
    "suites": ("compatgate.cli.canary.workloads:suites", "list suites of workloads"),
    "workloads": ("compatgate.cli.canary.workloads:workloads", "list workloads, or show one"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions."""
    parser.epilog = _EXAMPLES
    add_actions(parser, ACTIONS)


def run(args: argparse.Namespace) -> int:
    """Run the chosen action; return its exit status."""
    return run_action(args, ACTIONS)
