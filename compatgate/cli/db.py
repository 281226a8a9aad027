"""Run ``compatgate db``: show the database's address and schema, upgrade, prune and recover it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from compatgate.cli.commands import Group
from compatgate.documents.quantities import parse_duration
from compatgate.errors import BadInput
from compatgate.kit.cli.options import DATABASE, FORMAT, user_name
from compatgate.kit.cli.output import format_time, print_answer, print_json
from compatgate.kit.cli.terminal import strip_controls
from compatgate.kit.cli.usage import action
from compatgate.service.recovery.backup.checks import print_checks

if TYPE_CHECKING:
    from compatgate.service.runs.queue.pruning import PrunedRuns, PruneReport


@action(
    "backup",
    "write a backup of the database; the gate may stay in use",
    "file: FILE|-  output file; - for standard output",
    DATABASE,
    FORMAT,
    epilog="""\
The backup is a consistent snapshot of the database, made by SQLite's backup API or by pg_dump;
writers do not wait. The file has mode 0600: it
contains digests of tokens and names of callers. Save the head of the audit chain elsewhere.
exit status: 0 written, 2 bad input, 3 the database does not answer or is damaged
""",
)
def run_backup(args: argparse.Namespace) -> int:
    """Write a backup, and say what it holds."""
    from compatgate.kit.database.database import Database
    from compatgate.kit.database.opening import refuse_missing
    from compatgate.service.recovery.backup.backup import write_backup

    if args.file == "-" and sys.stdout.isatty():
        what = "a backup is binary, and standard output is a terminal"
        raise BadInput(what, field="backup", hint="name a file")
    refuse_missing(args.database)
    database = Database.open(args.database)
    try:
        report = write_backup(database, args.file)
    finally:
        database.close()
    if args.file == "-":
        print(f"audit head {report.audit_head}", file=sys.stderr)
    elif args.format == "json":
        print_json(msgspec.to_builtins(report))
    else:
        counts = f"{report.rows} rows, {report.audit_links} audit links"
        print(f"{args.file}: schema {report.schema}, {counts}\naudit head {report.audit_head}")
    return 0


@action(
    "restore",
    "restore a backup into an empty database",
    """\
FILE           backup file
--force        replace a database that contains data; keep its data in a file
--unverified   restore although the audit chain in the backup is not intact
--keep-schema  do not migrate; for a return to the compatgate version of the backup
""",
    DATABASE,
    FORMAT,
    epilog="""\
Stop the gates and workers first. A backup is restored into the kind of database that it came from;
PostgreSQL needs the program pg_restore. A backup of an older version is migrated.
exit status: 0 restored, 1 restored with a broken audit chain, 2 refused, 3 no answer
""",
)
def run_restore(args: argparse.Namespace) -> int:
    """Restore a backup; return 1 if its audit chain is not intact."""
    from compatgate.service.recovery.backup.restore import RestoreOptions, restore

    options = RestoreOptions(args.force, args.unverified, args.keep_schema)
    report = restore(args.file, args.database, options)
    content, chain = report.content, report.chain
    if args.format == "json":
        print_json(
            {
                "database": report.database,
                "made_at": content.latest_at,
                "schema": report.schema,
                "rows": content.rows,
                "aside": report.aside,
                "chain": msgspec.to_builtins(chain),
            }
        )
        return 0 if chain.ok else 1
    state = f"schema {report.schema}, {content.rows} rows"
    latest = content.latest_at or "an empty log"
    print(f"{report.database}: restored the state of {latest}, {state}")
    if chain.ok:
        print(f"the audit chain is intact: {chain.links} links, {chain.decisions} decisions")
    else:
        print(f"THE AUDIT CHAIN IS NOT INTACT: {chain.problems[0]}")
    if report.aside:
        print(f"the earlier data is in {report.aside}")
    return 0 if chain.ok else 1


@action(
    "verify",
    "verify the database or a backup: schema, pages and audit chain",
    """\
[FILE]       backup file (default: the database)
--head HASH  hash stored earlier; the audit chain must contain it
""",
    DATABASE,
    FORMAT,
    epilog="""\
A backup is restored into a temporary file ($TMPDIR), a dump into a temporary database on the server
of --database, to check that it can be restored.
exit status: 0 sound, 1 a check failed, 2 bad input
""",
)
def run_verify(args: argparse.Namespace) -> int:
    """Verify the database or a backup; return 1 if a check failed."""
    from compatgate.kit.database.database import Database
    from compatgate.kit.database.opening import refuse_missing
    from compatgate.service.recovery.backup.verify import verify_backup, verify_database

    as_json = args.format == "json"
    if args.file is not None:
        from compatgate.service.recovery.backup.backup import require_file

        require_file(args.file)
        found = list(verify_backup(args.file, args.database, head=args.head))
        return print_checks(found, as_json=as_json)
    refuse_missing(args.database)
    database = Database.open(args.database)
    try:
        checks = list(verify_database(database, head=args.head))
    finally:
        database.close()
    return print_checks(checks, as_json=as_json)


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
    (_upgrade, _status, _path, run_backup, run_restore, run_verify, _prune),
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
