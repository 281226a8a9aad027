"""Run ``compatgate db``: show the database's address and schema, upgrade, prune and recover it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from compatgate.cli.audit import recovery
from compatgate.cli.commands import Group
from compatgate.documents.quantities import parse_duration
from compatgate.errors import BadInput
from compatgate.kit.cli.options import DATABASE, FORMAT, user_name
from compatgate.kit.cli.output import format_time, print_answer, print_json
from compatgate.kit.cli.terminal import strip_controls
from compatgate.kit.cli.usage import action

if TYPE_CHECKING:
    from compatgate.service.runs.queue.pruning import PrunedRuns, PruneReport


@action("upgrade", "create the database, or upgrade its schema", DATABASE, FORMAT)
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


@action("status", "show the schema; exit status 1 if an upgrade is needed", DATABASE, FORMAT)
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


@action("path", "print the address of the database", DATABASE, FORMAT)
def _path(args: argparse.Namespace) -> int:
    from compatgate.kit.database.database import display_url, resolve_url

    url = resolve_url(args.database)
    place = url.database if url.drivername == "sqlite" else display_url(url)
    _print(args, {"database": display_url(url)}, str(place))
    return 0


def _print(args: argparse.Namespace, report: Mapping[str, object], text: str) -> None:
    print_answer(args.format, report, lambda: text)


_AGES = {
    "logs": "--run-logs-older-than",
    "reports": "--run-reports-older-than",
    "hosts": "--hosts-unseen-for",
}
"""Kinds of data that ``prune`` removes, with their options."""


@action(
    "prune",
    "remove old logs and reports of runs, and hosts without a worker",
    """\
logs: --run-logs-older-than DURATION
    remove logs of runs that ended before this age, for example 90d
reports: --run-reports-older-than DURATION
    remove step reports of runs that ended before this age and that no evidence, warning or baseline
    uses, for example 90d
hosts: --hosts-unseen-for DURATION
    remove staging hosts that no worker has served for this long, for example 90d
--dry-run  show what would be removed
""",
    DATABASE,
    FORMAT,
)
def _prune(args: argparse.Namespace) -> int:
    """Remove old data, and print a summary."""
    from compatgate.kit.database.opening import open_database
    from compatgate.service.runs.queue.pruning import PruneAges, prune_database

    ages = PruneAges(**{name: _age(args, name) for name in _AGES})
    if ages == PruneAges():
        hint = f"one of {', '.join(_AGES.values())}"
        raise BadInput("no data to remove is selected", field="db prune", hint=hint)
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
    text = getattr(args, name)
    return parse_duration(text, field=_AGES[name]) if text else None


def _print_pruned(found: PruneReport) -> None:
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
    return (
        f"{what} of runs that ended before {format_time(part.before)}:"
        f" {part.runs} runs, {part.bytes / 2**20:.1f} MiB"
    )


run = Group(
    (
        _upgrade,
        _status,
        _path,
        recovery.run_backup,
        recovery.run_restore,
        recovery.run_verify,
        _prune,
    ),
    epilog="""\
examples:
  compatgate db status
  compatgate db upgrade --database postgresql://gate@db.example/gate
  compatgate db backup compatgate.backup
  compatgate db verify compatgate.backup
  compatgate db restore compatgate.backup --database postgresql://gate@db.example/gate
  compatgate db prune --run-logs-older-than 90d --dry-run
""",
)
