"""Run ``compatgate matrix``: import, compare, propose and export the blessed matrix."""

from __future__ import annotations

from compatgate.cli.commands import Group
from compatgate.cli.gate import comparison
from compatgate.cli.matrix import diff, documents, export, files, proposals, sync, waivers

run = Group(
    (
        files.import_files,
        sync.sync_files,
        export.export_matrix,
        diff.diff_matrix,
        comparison.run_backtest,
        documents.delete_document,
        waivers.waive,
        documents.show_list,
        documents.show_document,
        comparison.show_dependents,
        comparison.run_packages,
        proposals.propose,
        proposals.revert,
        documents.LOG,
        *proposals.ROWS,
        files.print_example,
    ),
    epilog="""\
examples:
  compatgate matrix example > matrix.yaml
  compatgate matrix import targets.yaml entries.yaml --dry-run
  compatgate matrix sync ./matrix --name fleet --prune --check
  compatgate matrix backtest entries.yaml --days 7
  compatgate matrix waive vd_52f3d1a2b4c6e8f0 --reason "moves on Friday" --dry-run
  compatgate matrix list --target prod-a100 --status blessed
  compatgate matrix diff --from 2026-11-03 --to 42
  compatgate matrix packages-report --target prod-a100
  compatgate matrix dependents torch24-cu124
  compatgate matrix propose --target prod-a100 --set driver=580.95.05
  compatgate matrix show pr_52f3d1a2b4c6e8f0
  compatgate matrix revert 42 --reason "jobs fail since"
  compatgate matrix export --at 41 -o matrix.yaml
""",
)
