"""Run ``compatgate db`` and ``doctor``: upgrade, prune and recover a database; find problems."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from compatgate.cli.commands import Group
from compatgate.documents.quantities import parse_duration
from compatgate.errors import BadInput
from compatgate.kit.cli.options import DATABASE, FORMAT, user_name
from compatgate.kit.cli.output import format_time, print_answer, say, strip_controls
from compatgate.kit.cli.parser import add_overlays
from compatgate.kit.cli.usage import action, command
from compatgate.service.recovery.checks import print_checks

if TYPE_CHECKING:
    from compatgate.kit.database.database import Database

_AGES = {
    "logs": "--run-logs-older-than",
    "reports": "--run-reports-older-than",
    "hosts": "--hosts-unseen-for",
}
"""Kinds of data that ``prune`` removes, with their options."""


@action(
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
    from compatgate.service.recovery.backup import write_backup

    if args.file == "-" and sys.stdout.isatty():
        what = "a backup is binary, and standard output is a terminal"
        raise BadInput(what, field="backup", hint="name a file")
    with _open(args.database) as database:
        report = write_backup(database, args.file)
    if args.file == "-":
        say(f"audit head {report.audit_head}")
        return 0
    counts = f"{report.rows} rows, {report.audit_links} audit links"
    text = f"{args.file}: schema {report.schema}, {counts}\naudit head {report.audit_head}"
    return print_answer(args.format, report, text)


@contextmanager
def _open(named: str | None) -> Iterator[Database]:
    """Open a database that exists, whatever its schema is."""
    from compatgate.kit.database.database import Database
    from compatgate.kit.database.opening import refuse_missing

    refuse_missing(named)
    with closing(Database.open(named)) as database:
        yield database


@action(
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
    from compatgate.service.recovery.restore import RestoreOptions, restore

    options = RestoreOptions(args.force, args.unverified, args.keep_schema)
    report = restore(args.file, args.database, options)
    content, chain = report.content, report.chain
    answer = {
        "database": report.database,
        "made_at": content.latest_at,
        "schema": report.schema,
        "rows": content.rows,
        "aside": report.aside,
        "chain": chain,
    }
    latest, size = content.latest_at or "an empty log", f"{content.rows} rows"
    intact = f"the audit chain is intact: {chain.links} links, {chain.decisions} decisions"
    lines = [
        f"{report.database}: restored the state of {latest}, schema {report.schema}, {size}",
        intact if chain.ok else f"THE AUDIT CHAIN IS NOT INTACT: {chain.problems[0]}",
    ]
    lines += [f"the earlier data is in {report.aside}"] if report.aside else []
    print_answer(args.format, answer, "\n".join(lines))
    return 0 if chain.ok else 1


@action(
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
    from compatgate.service.recovery.backup import require_file
    from compatgate.service.recovery.verify import verify_backup, verify_database

    if args.file is not None:
        require_file(args.file)
        checks = list(verify_backup(args.file, args.database, head=args.head))
    else:
        with _open(args.database) as database:
            checks = list(verify_database(database, head=args.head))
    return print_checks(checks, as_json=args.format == "json")


@action("create the database, or upgrade its schema", DATABASE, FORMAT)
def _upgrade(args: argparse.Namespace) -> int:
    from compatgate.kit.database import tables
    from compatgate.kit.database.database import Database
    from compatgate.kit.database.opening import upgrade_schema

    with closing(Database.open(args.database)) as database:
        is_old = tables.current_version(database) not in (None, tables.EXPECTED_VERSION)
        if is_old and not database.is_sqlite:
            note = "no copy of a PostgreSQL database is made: back up with compatgate db backup"
            say(f"note: {note}")
        done = upgrade_schema(database)
    report = {"database": done.database, "before": done.before, "schema": done.after}
    return print_answer(args.format, report | {"copy": done.copy}, done.sentence)


@action("show the schema; exit status 1 if an upgrade is needed", DATABASE, FORMAT)
def _status(args: argparse.Namespace) -> int:
    """Show the schema, without creating a file."""
    from compatgate.kit.database import tables
    from compatgate.kit.database.database import Database, display_url, resolve_url

    url, needed = resolve_url(args.database), tables.expected_version()
    if url.drivername == "sqlite" and not os.path.exists(str(url.database)):
        name, schema = display_url(url), None
        text = "does not exist; create it with compatgate db upgrade"
    else:
        with closing(Database.open(args.database)) as database:
            name, schema = database.shown, tables.current_version(database)
        to_do = f"run: compatgate db upgrade ({needed} needed)"
        text = f"schema {schema or 'none'}, {'up to date' if schema == needed else to_do}"
    report = {"database": name, "schema": schema, "expected": needed}
    print_answer(args.format, report, f"{name}: {text}")
    return 0 if schema == needed else 1


@action("print the address of the database", DATABASE, FORMAT)
def _path(args: argparse.Namespace) -> int:
    from compatgate.kit.database.database import display_url, resolve_url

    url = resolve_url(args.database)
    place = url.database if url.drivername == "sqlite" else display_url(url)
    return print_answer(args.format, {"database": display_url(url)}, str(place))


@action(
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
    from compatgate.kit.database.opening import open_database
    from compatgate.service.runs.queue.pruning import PruneAges, prune_database

    ages = {
        name: parse_duration(getattr(args, name), field=option)
        for name, option in _AGES.items()
        if getattr(args, name)
    }
    if not ages:
        hint = f"one of {', '.join(_AGES.values())}"
        raise BadInput("no data to remove is selected", field="db prune", hint=hint)
    with closing(open_database(args.database)) as database:
        found = prune_database(database, PruneAges(**ages), by=user_name(), dry_run=args.dry_run)
    lines = []
    for what, part in (("logs", found.logs), ("reports", found.reports)):
        if part:
            size = f"{part.runs} runs, {part.bytes / 2**20:.1f} MiB"
            lines.append(f"{what} of runs that ended before {format_time(part.before)}: {size}")
    if hosts := found.hosts:
        lines.append(f"hosts unseen since {format_time(hosts.before)}: {len(hosts.hosts)}")
        for name, seen in hosts.hosts.items():
            lines.append(f"  {strip_controls(name)}, last seen {format_time(seen)}")
    if found.nothing:
        lines.append("nothing to remove")
    elif found.dry_run:
        lines.append("dry run: no data was removed")
    return print_answer(args.format, found.to_json(), "\n".join(lines))


run = Group(
    {
        "upgrade": _upgrade,
        "status": _status,
        "path": _path,
        "backup": run_backup,
        "restore": run_restore,
        "verify": run_verify,
        "prune": _prune,
    }
)


@command(
    DATABASE,
    """\
--server URL         URL of a running gate (default: $COMPATGATE_SERVER)
--token TOKEN        access token (default: $COMPATGATE_TOKEN)
--state DIR          state folder of a replica, as for serve (default: $COMPATGATE_STATE, else the
                     folder that serve uses, if it exists)
--tls-cert FILE      certificate of the server (PEM)
--registry HOST ...  registry to check; may be repeated (default: $COMPATGATE_REGISTRIES)
--hosts FILE         hosts.toml with the Docker engines to check
--signing-key URI    key that signs verdicts (default: $COMPATGATE_SIGNING_KEY)
""",
    add_overlays,
    FORMAT,
    epilog="""\
examples:
  compatgate doctor
  compatgate doctor --database postgresql://gate@db.example/gate --server https://gate.example
  compatgate doctor --hosts hosts.toml --tls-cert gate.pem --format json

One line for each check: ok, warn, fail or skip, what was found, and what to do. Nothing is changed.
compatgate db verify checks every row and the whole audit chain.
exit status: 0 nothing failed, 1 a check failed, 2 bad input
""",
)
def run_doctor(args: argparse.Namespace) -> int:
    """Print the checks; return 1 if one failed."""
    from compatgate.service.recovery.doctor import Subjects, examine

    read = os.environ.get
    named = [item.strip() for item in read("COMPATGATE_REGISTRIES", "").split(",")]
    subjects = Subjects(
        database=args.database,
        overlays=args.facts,
        state=args.state,
        server=args.server or read("COMPATGATE_SERVER") or None,
        token=args.token or read("COMPATGATE_TOKEN") or None,
        certificate=args.tls_cert,
        registries=tuple(filter(None, [*args.registry, *named])),
        hosts=args.hosts,
        signing_key=args.signing_key or read("COMPATGATE_SIGNING_KEY") or None,
    )
    return print_checks(list(examine(subjects)), as_json=args.format == "json")
