"""``compatgate db``: where the database is, what schema it has, upgrading and pruning it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from compatgate.cli import db_prune
from compatgate.cli.database import add_database, add_format, print_json

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

_EXAMPLES = """\
examples:
  compatgate db status
  compatgate db upgrade --database postgresql://gate@db.example/gate
  compatgate db prune --run-logs-older-than 90d --dry-run
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command and its actions."""
    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, help_text in (
        ("upgrade", "bring the database to this program's schema; make it if need be"),
        ("status", "show its schema; exit status 1 when it must be upgraded"),
        ("path", "print which database is meant"),
    ):
        action = actions.add_parser(name, help=help_text)
        add_database(action)
        add_format(action)
    pruning = actions.add_parser("prune", help=db_prune.HELP)
    db_prune.add_arguments(pruning)
    add_database(pruning)
    add_format(pruning)


def run(args: argparse.Namespace) -> int:
    """Do what was asked.

    Raises:
        BadInput: the database's URL or an option is malformed.
        Unavailable: it does not answer, or a newer program wrote it.
    """
    if args.action == "prune":
        return db_prune.run(args)
    from compatgate.store.urls import resolve_url, shown

    if args.action == "path":
        url = resolve_url(args.database)
        place = url.database if url.drivername == "sqlite" else shown(url)
        _print(args, {"database": shown(url)}, str(place))
        return 0
    return _upgrade(args) if args.action == "upgrade" else _status(args)


def _upgrade(args: argparse.Namespace) -> int:
    from compatgate.store import schema
    from compatgate.store.database import Database

    database = Database.open(args.database)
    before = schema.current(database)
    after = schema.migrate(database)
    report = {"database": database.shown, "before": before, "schema": after}
    change = f"{before or 'empty'} -> {after}" if before != after else f"already at {after}"
    _print(args, report, f"{database.shown}: {change}")
    database.close()
    return 0


def _status(args: argparse.Namespace) -> int:
    """Show the schema; looking makes no file."""
    from compatgate.store import schema
    from compatgate.store.database import Database
    from compatgate.store.urls import resolve_url, shown

    url = resolve_url(args.database)
    if url.drivername == "sqlite" and not os.path.exists(str(url.database)):
        report = {"database": shown(url), "schema": None, "expected": schema.expected()}
        _print(args, report, f"{shown(url)}: there is none; compatgate db upgrade makes it")
        return 1
    database = Database.open(args.database)
    found, needed = schema.current(database), schema.expected()
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
