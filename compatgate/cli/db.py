"""Run ``compatgate db``: show the database's address and schema, upgrade, prune and recover it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from compatgate.cli.audit import recovery as recovery
from compatgate.kit.cli.options import add_database, add_format
from compatgate.kit.cli.output import print_json

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
    from datetime import timedelta

    from compatgate.service.runs.queue.pruning import PrunedRuns, PruneReport

_EXAMPLES = """\
examples:
  compatgate db status
  compatgate db upgrade --database postgresql://gate@db.example/gate
  compatgate db backup compatgate.backup
  compatgate db verify compatgate.backup
  compatgate db restore compatgate.backup --database postgresql://gate@db.example/gate
  compatgate db prune --run-logs-older-than 90d --dry-run
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions and options."""
    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, help_text in (
        ("upgrade", "create the database, or upgrade its schema"),
        ("status", "show the schema; exit status 1 if an upgrade is needed"),
        ("path", "print the address of the database"),
    ):
        action = actions.add_parser(name, help=help_text)
        add_database(action)
        add_format(action)
    recovery.add_recovery_actions(actions)
    pruning = actions.add_parser("prune", help=PRUNE_HELP)
    add_prune_arguments(pruning)
    add_database(pruning)
    add_format(pruning)


def run(args: argparse.Namespace) -> int:
    """Run the chosen action."""
    others = {
        "prune": run_prune,
        "backup": recovery.run_backup,
        "restore": recovery.run_restore,
        "verify": recovery.run_verify,
    }
    if args.action in others:
        return others[args.action](args)
    from compatgate.kit.database.database import display_url, resolve_url

    if args.action == "path":
        url = resolve_url(args.database)
        place = url.database if url.drivername == "sqlite" else display_url(url)
        _print(args, {"database": display_url(url)}, str(place))
        return 0
    return _upgrade(args) if args.action == "upgrade" else _status(args)


def _upgrade(args: argparse.Namespace) -> int:
    from compatgate.kit.database import tables
    from compatgate.kit.database.database import Database
    from compatgate.kit.database.opening import upgrade_schema

    database = Database.open(args.database)
    try:
        is_old = tables.current_version(database) not in (None, tables.EXPECTED_VERSION)
        if is_old and not database.is_sqlite:
            what = (
                "note: no copy of a PostgreSQL database is made: back up with compatgate db backup"
            )
            print(what, file=sys.stderr)
        done = upgrade_schema(database)
    finally:
        database.close()
    report = {"database": done.database, "before": done.before, "schema": done.after}
    _print(args, report | {"copy": done.copy}, done.sentence)
    return 0


def _status(args: argparse.Namespace) -> int:
    """Show the schema, without creating a file."""
    from compatgate.kit.database import tables
    from compatgate.kit.database.database import Database, display_url, resolve_url

    url = resolve_url(args.database)
    if url.drivername == "sqlite" and not os.path.exists(str(url.database)):
        report = {
            "database": display_url(url),
            "schema": None,
            "expected": tables.expected_version(),
        }
        _print(
            args,
            report,
            f"{display_url(url)}: does not exist; create it with compatgate db upgrade",
        )
        return 1
    database = Database.open(args.database)
    found, needed = tables.current_version(database), tables.expected_version()
    state = "up to date" if found == needed else f"run: compatgate db upgrade ({needed} needed)"
    report = {"database": database.shown, "schema": found, "expected": needed}
    _print(args, report, f"{database.shown}: schema {found or 'none'}, {state}")
    database.close()
    return 0 if found == needed else 1


def _print(args: argparse.Namespace, report: Mapping[str, object], text: str) -> None:
    if args.format == "json":
        print_json(report)
    else:
        print(text)


PRUNE_HELP = "remove old logs and reports of runs, and hosts without a worker"
_OPTIONS = {
    "logs": ("--run-logs-older-than", "remove logs of runs that ended before this age"),
    "reports": (
        "--run-reports-older-than",
        "remove step reports of runs that ended before this age and that no evidence, warning or"
        " baseline uses",
    ),
    "hosts": ("--hosts-unseen-for", "remove staging hosts that no worker has served for this long"),
}


def add_prune_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    for name, (option, help_text) in _OPTIONS.items():
        parser.add_argument(
            option, dest=name, metavar="DURATION", help=f"{help_text}, for example 90d"
        )
    parser.add_argument("--dry-run", action="store_true", help="show what would be removed")


def run_prune(args: argparse.Namespace) -> int:
    """Remove old data, and print a summary."""
    from compatgate.errors import BadInput
    from compatgate.kit.cli.options import user_name
    from compatgate.kit.database.opening import open_database
    from compatgate.service.runs.queue.pruning import PruneAges, prune_database

    ages = PruneAges(**{name: _age(args, name) for name in _OPTIONS})
    if ages == PruneAges():
        options = ", ".join(option for option, _ in _OPTIONS.values())
        raise BadInput("no data to remove is selected", field="db prune", hint=f"one of {options}")
    database = open_database(args.database)
    try:
        found = prune_database(database, ages, by=user_name(), dry_run=args.dry_run)
    finally:
        database.close()
    if args.format == "json":
        print_json(found.to_json())
    else:
        _print_pruned(found)
    return 0


def _age(args: argparse.Namespace, name: str) -> timedelta | None:
    from compatgate.documents.quantities import parse_duration

    text = getattr(args, name)
    return parse_duration(text, field=_OPTIONS[name][0]) if text else None


def _print_pruned(found: PruneReport) -> None:
    from compatgate.kit.cli.output import format_time
    from compatgate.kit.cli.terminal import strip_controls

    for what, part in (("logs", found.logs), ("reports", found.reports)):
        if part:
            print(_line(what, part))
    if found.hosts:
        print(f"hosts unseen since {format_time(found.hosts.before)}: {len(found.hosts.hosts)}")
        for name, seen in found.hosts.hosts.items():
            print(f"  {strip_controls(name)}, last seen {format_time(seen)}")
    if found.nothing:
        print("nothing to remove")
    elif found.dry_run:
        print("dry run: no data was removed")


def _line(what: str, part: PrunedRuns) -> str:
    from compatgate.kit.cli.output import format_time

    return (
        f"{what} of runs that ended before {format_time(part.before)}:"
        f" {part.runs} runs, {part.bytes / 2**20:.1f} MiB"
    )
