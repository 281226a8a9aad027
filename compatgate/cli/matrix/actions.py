"""Run ``compatgate matrix``: import, compare, propose and export the blessed matrix."""

from __future__ import annotations

from compatgate.cli.commands import Group

run = Group(
    {
        "import": "compatgate.cli.matrix.files:import_files",
        "sync": "compatgate.cli.matrix.sync:sync_files",
        "export": "compatgate.cli.matrix.export:export_matrix",
        "diff": "compatgate.cli.matrix.diff:diff_matrix",
        "backtest": "compatgate.cli.gate.comparison:run_backtest",
        "delete": "compatgate.cli.matrix.documents:delete_document",
        "waive": "compatgate.cli.matrix.waivers:waive",
        "list": "compatgate.cli.matrix.documents:show_list",
        "show": "compatgate.cli.matrix.documents:show_document",
        "dependents": "compatgate.cli.gate.comparison:show_dependents",
        "packages-report": "compatgate.cli.gate.comparison:run_packages",
        "propose": "compatgate.cli.matrix.proposals:propose",
        "revert": "compatgate.cli.matrix.proposals:revert",
        "log": "compatgate.cli.matrix.documents:LOG",
        "proposals": "compatgate.cli.matrix.proposals:LIST",
        "approvals": "compatgate.cli.matrix.proposals:APPROVALS",
        "refuse": "compatgate.cli.matrix.proposals:REFUSE",
        "approve": "compatgate.cli.matrix.proposals:APPROVE",
        "retract": "compatgate.cli.matrix.proposals:RETRACT",
        "merge": "compatgate.cli.matrix.proposals:MERGE",
        "close": "compatgate.cli.matrix.proposals:CLOSE",
        "example": "compatgate.cli.matrix.files:print_example",
    }
)
