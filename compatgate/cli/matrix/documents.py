"""Run ``compatgate matrix``: describe its actions; list, show and delete documents; show revisions.

Importing files is in `cli_files`; exporting, comparing and syncing have modules of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from compatgate.cli.gate.opening import (
    RUN_MEMBERS,
    Operations,
    add_place,
    drop_members,
    drop_storage_members,
    run_action,
    run_row,
)
from compatgate.cli.matrix import proposals as proposals
from compatgate.cli.matrix import waivers as waivers
from compatgate.errors import BadInput, NotFound
from compatgate.gate_client import Body, ask, ask_all
from compatgate.kit.cli.commands import Cell, Option, Row, add_rows, print_rows, time_of
from compatgate.kit.cli.options import (
    add_authorship,
    add_force,
    add_format,
    add_limit,
    reason_of,
)
from compatgate.kit.cli.output import format_json_time, print_json
from compatgate.kit.cli.terminal import strip_controls
from compatgate.service.matrix.proposals.schemas import PROPOSAL_ID

if TYPE_CHECKING:
    import argparse

    from compatgate.client import Client

_EXAMPLES = """\
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
"""
_KINDS = ("entry", "waiver", "target")
_FILES_HELP = 'YAML or JSON files, folders of them, or "-" for standard input'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command and its actions."""
    from compatgate.cli.gate import comparison as commands
    from compatgate.cli.matrix import diff as cli_diff
    from compatgate.cli.matrix import export as cli_export
    from compatgate.cli.matrix import sync as cli_sync

    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, help_text, describe in (
        ("import", "create or change the documents in files, all or none", _import_arguments),
        ("sync", "make the stored matrix equal to the files", cli_sync.sync_arguments),
        (
            "export",
            "write every document, now or at an older revision",
            cli_export.export_arguments,
        ),
        ("diff", "show what files or a later revision would change", cli_diff.diff_arguments),
        (
            "backtest",
            "show which recorded verdicts a change would alter",
            commands.backtest_arguments,
        ),
        (
            "delete",
            "delete an entry, waiver or target; earlier revisions keep it",
            _delete_arguments,
        ),
        ("waive", "waive the rules that denied one stack", waivers.waive_arguments),
        ("list", "list entries, targets or waivers", _list_arguments),
        ("show", "print a document, or a proposal", _show_arguments),
        (
            "dependents",
            "list the targets, recorded stacks and nodes that depend on an entry",
            commands.dependents_arguments,
        ),
        (
            "packages-report",
            "show what packages: enforce would stop on targets that audit packages",
            commands.packages_arguments,
        ),
        ("propose", "propose a change for others to approve", proposals.propose_arguments),
        ("revert", "undo a revision", proposals.revert_arguments),
    ):
        action = actions.add_parser(name, help=help_text)
        describe(action)
        add_place(action)
    add_rows(actions, (LOG, *proposals.ROWS))
    actions.add_parser("example", help="print an example matrix to start from")


def _import_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE|DIR|-", help=_FILES_HELP)
    parser.add_argument("--dry-run", action="store_true", help="show what would change")
    add_force(parser)
    add_authorship(parser)
    add_format(parser)


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", nargs="?", choices=("entries", "targets", "waivers"),
                        default="entries", help="kind of documents (default: entries)")  # fmt: skip
    parser.add_argument("--target", help="target of entries or waivers")
    parser.add_argument(
        "--status",
        choices=("candidate", "blessed", "deprecated", "revoked"),
        help="status of entries",
    )
    parser.add_argument("--component", help="component of entries")
    parser.add_argument("--owner", help="owner of the documents")
    parser.add_argument("--label", metavar="KEY=VALUE", help="label of entries or targets")
    parser.add_argument("--search", metavar="TEXT", help="part of the name")
    add_limit(parser)
    add_format(parser)


def _show_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", metavar="NAME", help="name of an entry, target or waiver, or id of a proposal"
    )
    parser.add_argument("--kind", choices=_KINDS, help="kind, if several documents have this name")
    add_format(parser)


def _delete_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of an entry, waiver or target")
    parser.add_argument("--kind", choices=_KINDS, help="kind, if several documents have this name")
    add_authorship(parser)
    add_format(parser)


def _add_revision(parser: argparse.ArgumentParser) -> None:
    about = "revision to show in full"
    parser.add_argument("revision", nargs="?", type=int, metavar="REVISION", help=about)


LOG = Row(
    "log",
    "list_revisions",
    "list revisions, or show what one changed",
    (
        Option("name", help="only revisions of this document"),
        Option("since", metavar="TIME", help="first day, for example 2026-11-03"),
        Option("until", metavar="TIME", help="end time, for example 2026-11-03T18:00:00Z"),
    ),
    {
        "revision": "number",
        "made": time_of("made_at"),
        "author": "author",
        "action": "action",
        "documents": "count",
        "proposal": lambda row: row["proposal"] or "direct",
        "reason": "reason",
    },
    "no revisions",
    extend=_add_revision,
)


def run(args: argparse.Namespace) -> int:
    """Run an action."""
    from compatgate.cli.gate import comparison as commands
    from compatgate.cli.matrix import diff as cli_diff
    from compatgate.cli.matrix import export as cli_export
    from compatgate.cli.matrix import files as cli_files
    from compatgate.cli.matrix import sync as cli_sync

    if args.action == "example":
        return cli_files.print_example()
    if any(row.action == args.action for row in proposals.ROWS):
        return proposals.run_proposal_row(args)
    if args.action == "log" and args.revision is None:
        return run_row(args, LOG)
    return run_action(
        args,
        {
            "import": cli_files.import_files,
            "sync": cli_sync.sync_files,
            "export": cli_export.export_matrix,
            "diff": cli_diff.diff_matrix,
            "backtest": commands.run_backtest,
            "waive": waivers.waive,
            "list": show_list,
            "show": show_document,
            "delete": delete_document,
            "log": show_revision,
            "dependents": commands.show_dependents,
            "packages-report": commands.run_packages,
            "propose": proposals.propose,
            "revert": proposals.revert,
        },
        making=["import", "sync"],
    )


_FILTERS = {
    "entries": ("target", "status", "component", "label", "owner", "search"),
    "targets": ("label", "owner", "search"),
    "waivers": ("target", "owner", "search"),
}


def show_list(args: argparse.Namespace, gate: Client) -> int:
    """Run ``matrix list``."""
    listing: Any = {
        "entries": Operations.list_entries,
        "targets": Operations.list_targets,
        "waivers": Operations.list_waivers,
    }[args.kind]
    found = ask_all(gate, args.limit, listing, **_read_filters(args))
    if args.format == "json":
        print_json([drop_members(RUN_MEMBERS, body) for body in found])
        return 0
    print_rows(found, _COLUMNS[args.kind], f"no {args.kind}")
    return 0


def _read_filters(args: argparse.Namespace) -> dict[str, Any]:
    filters: dict[str, Any] = {}
    for name in ("target", "status", "component", "label", "owner", "search"):
        value = getattr(args, name)
        if value is None:
            continue
        if name not in _FILTERS[args.kind]:
            hint = f"filter {args.kind} by {', '.join(_FILTERS[args.kind])}"
            raise BadInput(f"{args.kind} have no {name}", field=f"--{name}", value=value, hint=hint)
        filters[name] = _canonical_name(value) if name == "component" else value
    return filters


def _canonical_name(component: str) -> str:
    from compatgate.core.components import resolve_component

    try:
        return resolve_component(component).component.name
    except BadInput as error:
        error.field = "--component"
        raise


def _document_name(body: Body) -> str:
    return str(body["metadata"]["name"])


def _join_targets(body: Body) -> str:
    return ",".join(body["spec"]["targets"])


_COLUMNS: dict[str, dict[str, Cell]] = {
    "entries": {
        "entry": _document_name,
        "status": lambda body: body["spec"]["status"],
        "targets": _join_targets,
        "revision": "revision",
        "components": lambda body: " ".join(
            f"{name} {text}" for name, text in body["spec"]["components"].items()
        ),
    },
    "targets": {
        "target": _document_name,
        "mode": lambda body: body["spec"]["policy"]["mode"],
        "revision": "revision",
        "pools": lambda body: " ".join(
            f"{pool['gpu']}/{pool['driver']}" for pool in body["spec"]["pools"]
        ),
    },
    "waivers": {
        "waiver": _document_name,
        "rules": lambda body: ",".join(body["spec"]["rules"]),
        "targets": _join_targets,
        "owner": lambda body: body["spec"]["owner"],
        "expires": lambda body: body["spec"]["expires"],
        "revision": "revision",
    },
}


def show_document(args: argparse.Namespace, gate: Client) -> int:
    """Run ``matrix show``."""
    import msgspec

    from compatgate.documents.text import to_yaml
    from compatgate.service.runs.evidence.promotion import EntryRemarks

    if PROPOSAL_ID.fullmatch(args.name) and not args.kind:
        return proposals.show_proposal(args, gate)
    found = _find_documents(args, gate)
    if args.format == "json":
        print_json(found)
        return 0
    print(to_yaml(map(drop_storage_members, found)), end="")
    for body in found:
        for line in msgspec.convert(body, EntryRemarks).lines():
            print(f"# {strip_controls(line)}")
    return 0


def delete_document(args: argparse.Namespace, gate: Client) -> int:
    """Run ``matrix delete``."""
    found = _find_documents(args, gate)
    if len(found) > 1:
        kinds = " and ".join(body["kind"] for body in found)
        what = f"{args.name!r} names several documents: {kinds}"
        raise BadInput(what, field="name", value=args.name, hint="choose one with --kind")
    kind, name = found[0]["kind"], _document_name(found[0])
    delete = {
        "Entry": Operations.delete_entry,
        "Waiver": Operations.delete_waiver,
        "Target": Operations.delete_target,
    }[kind]
    revision = ask(gate, delete, name, reason=reason_of(args, f"matrix delete {name}"))["revision"]
    if args.format == "json":
        print_json({"kind": kind, "name": name, "revision": revision})
    else:
        print(f"- {kind} {name}\nrevision {revision}: 1 deleted")
    return 0


def _find_documents(args: argparse.Namespace, gate: Client) -> list[Body]:
    show: dict[str, Any] = {
        "entry": Operations.show_entry,
        "waiver": Operations.show_waiver,
        "target": Operations.show_target,
    }
    if args.kind:
        return [ask(gate, show[args.kind], args.name)]
    found, hints = [], []
    for kind in _KINDS:
        try:
            found.append(ask(gate, show[kind], args.name))
        except NotFound as error:
            hints.append(error.hint)
    if not found:
        hint = next((hint for hint in hints if hint.startswith("did you mean")), "")
        what = f"no entry, waiver or target has the name {args.name!r}"
        raise NotFound(what, field="name", value=args.name, hint=hint)
    return found


def show_revision(args: argparse.Namespace, gate: Client) -> int:
    """Run ``matrix log REVISION``."""
    row = ask(gate, Operations.show_revision, args.revision)
    if args.format == "json":
        print_json(row)
        return 0
    made = format_json_time(row["made_at"])
    print(f"revision {row['number']}, {made}, {row['author']}: {row['reason']}")
    proposal = row["proposal"]
    print(f"merged by {proposal}" if proposal else "made directly, without a proposal")
    print_changes(row["changes"])
    return 0


_ACTION_SIGNS = {"create": "+", "change": "~", "delete": "-"}


def print_changes(changes: Iterable[Body]) -> None:
    """Print changes as text: one line per document, one line per field."""
    for change in changes:
        print(f"{_ACTION_SIGNS[change['action']]} {change['kind']} {change['name']}")
        for field in change["fields"]:
            print(f"    {field['path']}: {_to_text(field['before'])} -> {_to_text(field['after'])}")


def _to_text(value: Any) -> str:
    return "(none)" if value is None else json.dumps(value, ensure_ascii=False)
