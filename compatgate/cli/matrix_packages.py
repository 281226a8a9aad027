"""``compatgate matrix packages-report``: what ``packages: enforce`` would stop."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import msgspec

from compatgate.cli.database import add_format, moment, print_json, seconds, table
from compatgate.cli.parser import some
from compatgate.cli.terminal import printable, width_of, wrap
from compatgate.core.verdict import EXIT_ALLOWED, EXIT_DENIED, EXIT_NO_DECISION
from compatgate.wire.packages import DAYS, DECISIONS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from compatgate.client import Client
    from compatgate.wire.packages import OpenPackageBody, PackagesReportBody, PackagesTargetBody

_EXAMPLES = """\
examples:
  compatgate matrix packages-report
  compatgate matrix packages-report --target prod-a100 --since 2026-11-03 --format json

Looks at the targets whose policy says packages: audit. Once nothing is left to settle, change the
policy to packages: enforce.

exit status: 0 enforce would stop nothing that was looked at, 1 it would stop something, 2 bad
input, 3 it cannot be said: nothing was asked about a target and it has no entries, or not
everything could be looked at.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action."""
    parser.epilog = _EXAMPLES
    parser.add_argument("--target", help="report only this target")
    parser.add_argument(
        "--since", metavar="TIME", help=f"decisions from then on (the last {DAYS} days)"
    )
    parser.add_argument(
        "--decisions",
        type=some,
        metavar="N",
        default=DECISIONS,
        help=f"look at so many at most, the newest ({DECISIONS})",
    )
    add_format(parser)


def run(args: argparse.Namespace, gate: Client) -> int:
    """Print the report.

    Returns:
        0 nothing would be stopped, 1 something would, 3 it cannot be said.

    Raises:
        BadInput: ``--since`` is no time.
        NotFound: there is no such target.
    """
    since = moment(args.since, "--since")
    found = gate.packages_report(target=args.target, since=since, decisions=args.decisions)
    if args.format == "json":
        print_json(msgspec.to_builtins(found))
    else:
        print("\n".join(_text(found, args.target, width_of(sys.stdout))))
    return _status(found)


def _status(found: PackagesReportBody) -> int:
    if any(target.stopped or target.stopped_entries for target in found.targets):
        return EXIT_DENIED
    unseen = any(target.open or _saw_nothing(target) for target in found.targets)
    return EXIT_NO_DECISION if unseen or not found.complete else EXIT_ALLOWED


def _saw_nothing(target: PackagesTargetBody) -> bool:
    return not (target.decisions or target.entries)


def _text(found: PackagesReportBody, asked: str | None, width: int) -> Iterator[str]:
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
        yield from wrap(head + "no decision and no entry to look at", width)
    else:
        entries = f"{len(target.stopped_entries)} of {_entries(target.entries)}"
        decisions = f"{target.stopped} of {target.decisions} decisions"
        yield from wrap(f"{head}enforce would stop {decisions} and {entries}", width)
    for reason in target.open:
        yield from _indented(f"not looked at: {reason}", width, "  ")
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
