"""What commands that work on a database share: options, opening it, output."""

from __future__ import annotations

import getpass
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from compatgate.cli.parser import some
from compatgate.cli.terminal import printable

if TYPE_CHECKING:
    import argparse
    from datetime import datetime

    from compatgate.gate.images import ImageSettings
    from compatgate.gate.service import Gate

LONGEST_REASON = 2000
"""Characters of a revision's reason."""


def add_database(parser: argparse.ArgumentParser) -> None:
    """The option that names the database."""
    parser.add_argument(
        "--database",
        metavar="URL",
        help="postgresql://user@host/name, or path of an SQLite file"
        " ($COMPATGATE_DATABASE, else a file in the user's data folder)",
    )


def add_format(*parsers: argparse.ArgumentParser) -> None:
    """The option that chooses between people and programs."""
    for parser in parsers:
        parser.add_argument(
            "--format",
            choices=("text", "json"),
            default="text",
            help="output format (default: text)",
        )


def add_authorship(parser: argparse.ArgumentParser) -> None:
    """Who changes the matrix, and why."""
    parser.add_argument("--reason", help="reason, kept with the revision")
    parser.add_argument(
        "--author", help="author (default: your user name; a server records the token's name)"
    )


def add_limit(parser: argparse.ArgumentParser) -> None:
    """How many items a list shows."""
    parser.add_argument("--limit", type=some, metavar="N", help="number of items (default: all)")


def refuse_missing(named: str | None) -> None:
    """A file that was named to be read is there; only the user's own is made by reading.

    Args:
        named: the option; None: what the environment says.

    Raises:
        NotFound: it is not: an empty database would answer as if nothing were blessed, or audited.
    """
    from pathlib import Path

    from compatgate.errors import NotFound
    from compatgate.store.urls import ENVIRONMENT, resolve_url

    named = named or os.environ.get(ENVIRONMENT)
    url = resolve_url(named) if named else None
    if url and url.drivername == "sqlite" and not Path(str(url.database)).exists():
        hint = "compatgate db upgrade makes one, and so do serve, matrix import and token create"
        raise NotFound(f"there is no {url.database}", field="database", value=named, hint=hint)


@contextmanager
def opened(
    args: argparse.Namespace,
    *,
    make: bool = False,
    overlays: Sequence[str] | None = None,
    images: ImageSettings | None = None,
) -> Iterator[Gate]:
    """The gate on the database that the arguments name.

    Args:
        args: of the command.
        make: an SQLite file that is not there is made.
        overlays: as of `Gate.open`.
        images: as of `Gate.open`.

    Raises:
        NotFound: there is no such file.
        Unavailable: it does not answer, or has another schema.
    """
    from compatgate.gate.service import Gate

    if not make:
        refuse_missing(args.database)
    gate = Gate.open(args.database, overlays=overlays, images=images)
    try:
        yield gate
    finally:
        gate.close()


def reason(args: argparse.Namespace, otherwise: str) -> str:
    """Return why the matrix is changed.

    Args:
        args: of the command, with `add_authorship`.
        otherwise: the reason where none was given; cut where a revision cannot hold it.
    """
    if args.reason:
        return str(args.reason)
    readable = printable(otherwise).replace("\n", "\ufffd")
    most = LONGEST_REASON
    return readable if len(readable) <= most else f"{readable[: most - 3]}..."


def moment(text: str | None, option: str, *, end_of_day: bool = False) -> datetime | None:
    """A time that an option names.

    Raises:
        BadInput: not a time.
    """
    from compatgate.store.clock import parse_moment

    return parse_moment(text, field=option, end_of_day=end_of_day) if text else None


def revision_or_time(text: str, option: str) -> int | datetime:
    """Which matrix an option names: a revision's number, or a time.

    Raises:
        BadInput: it is neither.
    """
    from compatgate.errors import BadInput
    from compatgate.store.clock import parse_moment

    if text.isascii() and text.isdecimal() and len(text) < len("20261103"):
        return int(text)
    try:
        return parse_moment(text, field=option, end_of_day=True)
    except BadInput as error:
        error.hint = f"a revision's number, or a time {error.hint}"
        raise


def print_json(value: Any) -> None:
    """One JSON value, for programs."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(head: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """Columns for people; the last one is as wide as it needs to be."""
    cells = [[*map(_cell, row)] for row in rows]
    print(table([name.upper() for name in head], cells) if cells else empty)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns as wide as what they hold, as text."""
    lines = [head, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _cell(value: object) -> str:
    text = "-" if value in (None, "") else str(value)
    return " ".join(text.split())


def seconds(moment: datetime | None) -> str | None:
    """A time to the second, ``2026-11-03 09:30:00Z``."""
    return moment.strftime("%Y-%m-%d %H:%M:%SZ") if moment else None


def second(moment: str | None) -> str | None:
    """Return a time as JSON has it to the second, ``2026-11-03 09:30:00Z``."""
    return f"{moment[:19].replace('T', ' ')}Z" if moment else None


def user() -> str:
    """Who uses this machine."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return f"uid {os.getuid()}"
