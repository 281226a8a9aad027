"""``compatgate db prune``: remove old logs and reports of runs, and hosts that are gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatgate.cli.database import print_json

if TYPE_CHECKING:
    import argparse
    from datetime import timedelta

    from compatgate.gate.pruning import OfRuns, Pruned

HELP = "remove old logs and reports of runs, and hosts that no worker serves any more"
_OPTIONS = {
    "logs": ("--run-logs-older-than", "logs of runs that ended so long ago"),
    "reports": (
        "--run-reports-older-than",
        "what steps reported, of runs that ended so long ago and that no evidence, warning or"
        " baseline rests on",
    ),
    "hosts": ("--hosts-unseen-for", "staging hosts that no worker served for so long"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action."""
    for name, (option, help_text) in _OPTIONS.items():
        parser.add_argument(option, dest=name, metavar="DURATION", help=f"{help_text}, such as 90d")
    parser.add_argument("--dry-run", action="store_true", help="show what would be removed")


def run(args: argparse.Namespace) -> int:
    """Do what was asked.

    Raises:
        BadInput: a malformed duration, or nothing to remove was named.
        NotFound: there is no such SQLite file.
        Unavailable: the database does not answer, or has another schema.
    """
    from compatgate.cli.database import refuse_missing, user
    from compatgate.errors import BadInput
    from compatgate.gate.pruning import Ages, prune_database
    from compatgate.store import schema
    from compatgate.store.database import Database

    ages = Ages(**{name: _age(args, name) for name in _OPTIONS})
    if ages == Ages():
        options = ", ".join(option for option, _ in _OPTIONS.values())
        raise BadInput("nothing to remove is named", field="db prune", hint=f"one of {options}")
    refuse_missing(args.database)
    database = Database.open(args.database)
    try:
        schema.prepare(database)
        found = prune_database(database, ages, by=user(), dry_run=args.dry_run)
    finally:
        database.close()
    if args.format == "json":
        print_json(found.to_json())
    else:
        _print(found)
    return 0


def _age(args: argparse.Namespace, name: str) -> timedelta | None:
    from compatgate.documents.durations import parse_duration

    text = getattr(args, name)
    return parse_duration(text, field=_OPTIONS[name][0]) if text else None


def _print(found: Pruned) -> None:
    from compatgate.cli.database import seconds
    from compatgate.cli.terminal import printable

    for what, part in (("logs", found.logs), ("reports", found.reports)):
        if part:
            print(_line(what, part))
    if found.hosts:
        print(f"hosts unseen since {seconds(found.hosts.before)}: {len(found.hosts.hosts)}")
        for name, seen in found.hosts.hosts.items():
            print(f"  {printable(name)}, last seen {seconds(seen)}")
    if found.nothing:
        print("nothing to remove")
    elif found.dry_run:
        print("dry run: nothing was removed")


def _line(what: str, part: OfRuns) -> str:
    from compatgate.cli.database import seconds

    return (
        f"{what} of runs that ended before {seconds(part.before)}:"
        f" {part.runs} runs, {part.bytes / 2**20:.1f} MiB"
    )
