"""``compatgate matrix``: import, export, compare and look at the blessed matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatgate.cli.database import add_authorship, add_format, add_limit
from compatgate.cli.gate import add_place, perform

if TYPE_CHECKING:
    import argparse

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
        ("import", "create and change every document of some files, or none", _import_arguments),
        ("export", "write every document, now or as it was", _export_arguments),
        ("diff", "what some files, or a later revision, would change", _diff_arguments),
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
    from compatgate.cli import matrix_packages

    matrix_packages.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Do what was asked.

    Raises:
        ManyProblems: every mistake in the files; nothing was changed.
        NotFound: there is no such document or revision.
        Conflict: other documents name the target that is to be deleted.
    """
    from compatgate.cli import matrix_files, matrix_packages, matrix_views

    if args.action == "example":
        return matrix_files.example()
    return perform(
        args,
        {
            "import": matrix_files.import_files,
            "export": matrix_files.export,
            "diff": matrix_files.diff,
            "list": matrix_views.show_list,
            "show": matrix_views.show,
            "delete": matrix_views.delete,
            "log": matrix_views.log,
            "packages-report": matrix_packages.run,
        },
        making=["import"],
    )
