"""Run ``compatgate canary``: canary runs, workloads and measurements."""

from __future__ import annotations

from compatgate.cli.canary import (
    baselines,
    fleet,
    hosts,
    imports,
    judge,
    runs,
    samples,
    show,
    workloads,
)
from compatgate.cli.commands import Group

run = Group(
    (
        runs.run_start,
        runs.LIST,
        show.run_show,
        runs.run_logs,
        runs.run_cancel,
        runs.DISCARD,
        runs.run_rerun,
        imports.run_import,
        samples.run_sample,
        hosts.HOSTS,
        baselines.run,
        fleet.run_fleet,
        hosts.run_drift,
        judge.run_judge,
        workloads.run_fetch,
        workloads.run_lint,
        samples.run_read,
        workloads.run_suites,
        workloads.run_workloads,
    ),
    epilog="""\
examples:
  compatgate canary run --suite smoke --target prod-a100 --stack cuda=12.4,torch=2.4.1+cu124
  compatgate canary list --state active
  compatgate canary baselines list --state proposed
  compatgate canary judge before.jsonl after.jsonl
  compatgate canary judge pairs.jsonl --paired --history last-week.jsonl
  compatgate canary lint ./our-workloads
""",
)
