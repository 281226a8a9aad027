"""Option of ``compatgate serve`` for how decisions are committed."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, get_args

from compatgate.errors import BadInput

if TYPE_CHECKING:
    import argparse

    from compatgate.store.decision_writer import Commit

OPTION = "--decision-commit"
ENVIRONMENT = "COMPATGATE_DECISION_COMMIT"
_CHOICES = ("sync", "async")  # of Commit, which is not imported for --help
_WARNING = f"""\
warning: {OPTION} async: decisions that were answered in the last second are lost when a process of
PostgreSQL dies or its host loses power; sync keeps them"""


def add_commit(parser: argparse.ArgumentParser) -> None:
    """Describe the option."""
    parser.add_argument(
        OPTION,
        choices=_CHOICES,
        help="when a decision is answered on PostgreSQL: sync, once it is on the database's disk;"
        " async, before that, and the last second of answered decisions is lost when a process of"
        f" the database dies (${ENVIRONMENT}, else sync)",
    )


def commit_of(args: argparse.Namespace) -> Commit:
    """How decisions are committed; ``async`` is said on standard error.

    Raises:
        BadInput: the variable holds another word; or ``async`` would change nothing, on SQLite.
    """
    from compatgate.store.decision_writer import Commit
    from compatgate.store.urls import resolve_url

    given = args.decision_commit or os.environ.get(ENVIRONMENT) or "sync"
    field = OPTION if args.decision_commit else ENVIRONMENT
    known: dict[str, Commit] = {choice: choice for choice in get_args(Commit)}
    if given not in known:
        hint = f"one of {', '.join(known)}"
        raise BadInput(f"{given!r} is not known", field=field, value=given, hint=hint)
    if given == "async":
        if resolve_url(args.database).drivername == "sqlite":
            hint = "leave it out: SQLite never waits for its disk"
            raise BadInput("async is for PostgreSQL", field=field, value=given, hint=hint)
        print(_WARNING, file=sys.stderr)
    return known[given]
