"""Run ``compatgate canary``: canary runs, workloads and measurements."""

from __future__ import annotations

from compatgate.cli.commands import Group

run = Group(
    {
        "run": "compatgate.cli.canary.runs:run_start",
        "list": "compatgate.cli.canary.runs:LIST",
        "show": "compatgate.cli.canary.show:run_show",
        "logs": "compatgate.cli.canary.runs:run_logs",
        "cancel": "compatgate.cli.canary.runs:run_cancel",
        "discard": "compatgate.cli.canary.runs:DISCARD",
        "rerun": "compatgate.cli.canary.runs:run_rerun",
        "import": "compatgate.cli.canary.imports:run_import",
        "sample": "compatgate.cli.canary.samples:run_sample",
        "hosts": "compatgate.cli.canary.hosts:HOSTS",
        "baselines": "compatgate.cli.canary.baselines:run",
        "fleet": "compatgate.cli.canary.fleet:run_fleet",
        "drift": "compatgate.cli.canary.hosts:run_drift",
        "judge": "compatgate.cli.canary.judge:run_judge",
        "fetch": "compatgate.cli.canary.workloads:run_fetch",
        "lint": "compatgate.cli.canary.workloads:run_lint",
        "read": "compatgate.cli.canary.samples:run_read",
        "suites": "compatgate.cli.canary.workloads:run_suites",
        "workloads": "compatgate.cli.canary.workloads:run_workloads",
    }
)
