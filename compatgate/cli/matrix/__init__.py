"""Run ``compatgate matrix``: import, compare, propose and export the blessed matrix."""

from __future__ import annotations

from compatgate.cli.commands import Group

run = Group(
    {
        "import": "cli.matrix.files:import_files",
        "sync": "cli.matrix.diff:sync_files",
        "export": "cli.matrix.files:export_matrix",
        "diff": "cli.matrix.diff:diff_matrix",
        "backtest": "cli.gate.comparison:run_backtest",
        "delete": "cli.matrix.documents:delete_document",
        "waive": "cli.matrix.documents:waive",
        "list": "cli.matrix.documents:show_list",
        "show": "cli.matrix.documents:show_document",
        "dependents": "cli.gate.comparison:DEPENDENTS",
        "packages-report": "cli.gate.comparison:PACKAGES",
        "propose": "cli.matrix.proposals:propose",
        "revert": "cli.matrix.proposals:REVERT",
        "log": "cli.matrix.documents:LOG",
        "proposals": "cli.matrix.proposals:LIST",
        "approve": "cli.matrix.proposals:APPROVE",
        "retract": "cli.matrix.proposals:RETRACT",
        "merge": "cli.matrix.proposals:MERGE",
        "close": "cli.matrix.proposals:CLOSE",
        "example": "cli.matrix.files:print_example",
    }
)
