"""Run ``compatgate db backup``, ``restore`` and ``verify``."""

from __future__ import annotations

import argparse
import sys

import msgspec

from compatgate.errors import BadInput
from compatgate.kit.cli.options import DATABASE, FORMAT
from compatgate.kit.cli.output import print_json
from compatgate.kit.cli.usage import action
from compatgate.service.recovery.backup.checks import print_checks


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
