"""Run ``compatgate matrix``: import, export, compare and show the blessed matrix.

``packages-report`` shows the decisions and entries that ``packages: enforce`` would stop.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import msgspec

from compatgate.core.verdict import EXIT_ALLOWED, EXIT_DENIED, EXIT_NO_DECISION
from compatgate.kit.cli.options import add_authorship, add_format, add_limit, read_moment
from compatgate.kit.cli.output import print_json, seconds, table
from compatgate.kit.cli.parser import positive
from compatgate.kit.cli.terminal import printable, width_of, wrap
from compatgate.service.cli.gate import add_place, perform
from compatgate.service.matrix.schemas import DAYS, DECISIONS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from compatgate.client import Client
    from compatgate.service.matrix.schemas import (
        OpenPackageBody,
        PackagesReportBody,
        PackagesTargetBody,
    )

_EXAMPLES = """\
examples:
  compatgate matrix example > matrix.yaml
  compatgate matrix import targets.yaml entries.yaml --dry-run
  compatgate matrix list --target prod-a100 --status blessed
  compatgate matrix diff --from 2026-11-03 --to 42
  compatgate matrix packages-report --target prod-a100
  compatgate matrix export --at 41 -o matrix.yaml
"""
_KINDS = ("entry", "waiver", "target")
_FILES = 'YAML or JSON files, folders of them, or "-" for standard input'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command and its actions."""
    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, help_text, describe in (
        ("import", "create and change the documents of files, all or none", _import_arguments),
        ("export", "write every document, now or at an older revision", _export_arguments),
        ("diff", "show what files or a later revision would change", _diff_arguments),
        (
            "delete",
            "delete an entry, waiver or target; earlier revisions keep it",
            _delete_arguments,
        ),
        ("list", "list entries, targets or waivers", _list_arguments),
        ("show", "print a document", _show_arguments),
        ("log", "list revisions, or show what one changed", _log_arguments),
        (
            "packages-report",
            "show what packages: enforce would stop on targets that audit packages",
            _packages_arguments,
        ),
    ):
        action = actions.add_parser(name, help=help_text)
        describe(action)
        add_place(action)
    actions.add_parser("example", help="print an example matrix to start from")


def _import_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE|DIR|-", help=_FILES)
    parser.add_argument("--dry-run", action="store_true", help="show what would change")
    add_authorship(parser)
    add_format(parser)


def _export_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", metavar="FILE", default="-", help="output file (default: standard output)"
    )
    parser.add_argument("--at", metavar="REVISION|TIME", help="revision or time (default: now)")
    parser.add_argument(
        "--format", choices=("yaml", "json"), default="yaml", help="output format (default: yaml)"
    )


def _diff_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="*", metavar="FILE|DIR|-", help=f"{_FILES}; or --from")
    parser.add_argument(
        "--from", dest="older", metavar="REVISION|TIME", help="older revision or time"
    )
    parser.add_argument(
        "--to", dest="newer", metavar="REVISION|TIME", help="newer revision or time (default: now)"
    )
    parser.add_argument("--exit-code", action="store_true", help="exit with 1 if they differ")
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
    parser.add_argument("--owner", help="owner of waivers")
    parser.add_argument("--search", metavar="TEXT", help="part of the name")
    add_limit(parser)
    add_format(parser)


def _show_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of an entry, target or waiver")
    parser.add_argument("--kind", choices=_KINDS, help="kind, if several documents have this name")
    add_format(parser)


def _delete_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of an entry, waiver or target")
    parser.add_argument("--kind", choices=_KINDS, help="kind, if several documents have this name")
    add_authorship(parser)
    add_format(parser)


def _log_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "revision", nargs="?", type=int, metavar="REVISION", help="revision to show in full"
    )
    parser.add_argument("--name", help="only revisions of this document")
    parser.add_argument("--since", metavar="TIME", help="first day, for example 2026-11-03")
    parser.add_argument(
        "--until", metavar="TIME", help="end time, for example 2026-11-03T18:00:00Z"
    )
    add_limit(parser)
    add_format(parser)


def _packages_arguments(parser: argparse.ArgumentParser) -> None:
    add_packages_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run an action.

    Raises:
        ManyProblems: every mistake in the files; nothing changed.
        NotFound: there is no such document or revision.
        Conflict: other documents name the target to delete.
    """
    from compatgate.service.matrix import cli_files, cli_views
    from compatgate.service.matrix.cli import run_packages

    if args.action == "example":
        return cli_files.example()
    return perform(
        args,
        {
            "import": cli_files.import_files,
            "export": cli_files.export,
            "diff": cli_files.diff,
            "list": cli_views.show_list,
            "show": cli_views.show,
            "delete": cli_views.delete,
            "log": cli_views.log,
            "packages-report": run_packages,
        },
        making=["import"],
    )


_PACKAGES_EXAMPLES = """\
examples:
  compatgate matrix packages-report
  compatgate matrix packages-report --target prod-a100 --since 2026-11-03 --format json

Checks the targets whose policy says packages: audit. Settle the open packages, then change the
policy to packages: enforce.

exit status: 0 enforce would stop nothing, 1 enforce would stop a decision or an entry, 2 bad
input, 3 unknown: a target has neither decisions nor entries, or not everything could be checked.
"""


def add_packages_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments of ``matrix packages-report``."""
    parser.epilog = _PACKAGES_EXAMPLES
    parser.add_argument("--target", help="report only this target")
    parser.add_argument(
        "--since", metavar="TIME", help=f"time of the first decision (default: {DAYS} days ago)"
    )
    parser.add_argument(
        "--decisions",
        type=positive,
        metavar="N",
        default=DECISIONS,
        help=f"check at most N decisions, the newest (default: {DECISIONS})",
    )
    add_format(parser)


def run_packages(args: argparse.Namespace, gate: Client) -> int:
    """Print the report.

    Returns:
        0: enforce would stop nothing; 1: it would stop something; 3: unknown.

    Raises:
        BadInput: ``--since`` is not a time.
        NotFound: there is no such target.
    """
    since = read_moment(args.since, "--since")
    found = gate.packages_report(target=args.target, since=since, decisions=args.decisions)
    if args.format == "json":
        print_json(msgspec.to_builtins(found))
    else:
        print("\n".join(_packages_text(found, args.target, width_of(sys.stdout))))
    return _packages_status(found)


def _packages_status(found: PackagesReportBody) -> int:
    if any(target.stopped or target.stopped_entries for target in found.targets):
        return EXIT_DENIED
    unseen = any(target.open or _saw_nothing(target) for target in found.targets)
    return EXIT_NO_DECISION if unseen or not found.complete else EXIT_ALLOWED


def _saw_nothing(target: PackagesTargetBody) -> bool:
    return not (target.decisions or target.entries)


def _packages_text(found: PackagesReportBody, asked: str | None, width: int) -> Iterator[str]:
    if not found.targets:
        yield f"{asked or 'every target'} enforces packages: nothing to report"
        return
    for target in found.targets:
        yield from _target(target, width)
        yield ""
    which = "every decision" if found.complete else "the newest decisions, not every one,"
    yield f"{which} since {seconds(found.since)}; matrix revision {found.matrix_revision}"


def _target(target: PackagesTargetBody, width: int) -> Iterator[str]:
    head = f"{printable(target.target)} (mode {target.mode}): "
    if _saw_nothing(target):
        yield from wrap(head + "no decisions and no entries to check", width)
    else:
        entries = f"{len(target.stopped_entries)} of {_entries(target.entries)}"
        decisions = f"{target.stopped} of {target.decisions} decisions"
        yield from wrap(f"{head}enforce would stop {decisions} and {entries}", width)
    for reason in target.open:
        yield from _indented(f"not checked: {reason}", width, "  ")
    for package in target.packages:
        yield ""
        yield from _package(package, width)


def _entries(count: int) -> str:
    return f"{count} entr{'y' if count == 1 else 'ies'}"


def _package(package: OpenPackageBody, width: int) -> Iterator[str]:
    yield f"  {printable(package.package)} {printable(package.version)}  {', '.join(package.rules)}"
    yield from _indented(package.message, width, "    ")
    rows: list[tuple[str, Any]] = [
        ("decisions", f"{package.decisions}, of which enforce would stop {package.stopped}"),
        ("first seen", seconds(package.first)),
        ("last seen", seconds(package.last)),
        ("verdicts", ", ".join(package.verdicts)),
        ("entries", ", ".join(package.entries)),
    ]
    shown = [(name, printable(str(value))) for name, value in rows if value]
    yield from (f"    {line}" for line in table(shown[0], shown[1:]).splitlines())
    for way in package.todo:
        yield from _indented(f"to do: {way}", width, "    ")


def _indented(text: str, width: int, indent: str) -> Iterator[str]:
    return (f"{indent}{line}" for line in wrap(printable(text), max(width - len(indent), 30)))
