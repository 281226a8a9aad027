"""Run ``compatgate canary``: canary runs, workloads and measurements."""

from __future__ import annotations

from compatgate.cli.commands import Group

run = Group(
    {
        "run": "cli.canary.runs:START",
        "list": "cli.canary.runs:LIST",
        "show": "cli.canary.runs:SHOW",
        "logs": "cli.canary.runs:run_logs",
        "cancel": "cli.canary.runs:CANCEL",
        "discard": "cli.canary.runs:DISCARD",
        "rerun": "cli.canary.runs:RERUN",
        "import": "cli.canary.samples:run_import",
        "sample": "cli.canary.samples:run_sample",
        "hosts": "cli.canary.hosts:HOSTS",
        "baselines": "cli.canary.samples:run_baselines",
        "fleet": "cli.canary.hosts:run_fleet",
        "drift": "cli.canary.hosts:run_drift",
        "judge": "cli.canary.judge:run_judge",
        "fetch": "cli.canary.workloads:run_fetch",
        "lint": "cli.canary.workloads:run_lint",
        "read": "cli.canary.samples:run_read",
        "suites": "cli.canary.workloads:run_suites",
        "workloads": "cli.canary.workloads:run_workloads",
    }
)
