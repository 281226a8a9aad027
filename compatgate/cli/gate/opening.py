"""Ask the gate that a command names: a server, or the local database behind the same client.

Answers are the gate's own JSON: ``--format json`` prints an answer unchanged, including members
that only a newer gate knows. Commands that need the database itself, such as the worker, use
`open_rooms`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from compatgate.errors import BadInput, CompatgateError
from compatgate.gate_client import PATIENCE_S, Body, ask, ask_all, make_client
from compatgate.kit.cli.parser import add_server, server_of

if TYPE_CHECKING:
    import argparse

    from compatgate.client import Client
    from compatgate.client.operations import Operations as Operations
    from compatgate.kit.cli.commands import Row
    from compatgate.service.app import Rooms
    from compatgate.service.gate.questions.images import ImageSettings
else:

    class _Operations:
        """`Operations`, imported at its first use: once the command is connected.

        `make_client` imports httpx without the libraries of httpx's own command line.
        """

        def __getattr__(self, name: str) -> Any:
            from compatgate.client.operations import Operations

            return getattr(Operations, name)

    Operations = _Operations()

RUN_MEMBERS = ("warnings", "promotion")
"""Members of an entry that come from canary runs."""
_STORAGE_MEMBERS = ("revision", "created_at", "updated_at", *RUN_MEMBERS)
"""Members of an answer that do not belong to the document."""


def add_place(*parsers: argparse.ArgumentParser) -> None:
    """Add the options that name the gate or the database."""
    from compatgate.kit.cli.options import add_database

    for parser in parsers:
        add_server(parser)
        add_database(parser)


@contextmanager
def gate_of(
    args: argparse.Namespace,
    *,
    name: str | None = None,
    make: bool = False,
    patience_s: float | None = None,
) -> Iterator[Client]:
    """Connect to the server that the arguments or the environment name, else to the database.

    Args:
        name: who asks the database; None: ``--author``, else this machine's user. A server knows
            the caller by the token.
        make: create an SQLite file that does not exist.
        patience_s: seconds that a server may take; None: as usual.
    """
    author = getattr(args, "author", None)
    if url := server_of(args):
        if author:
            what = "a server does not accept an author"
            hint = "remove --author: the token names the author"
            raise BadInput(what, field="--author", value=author, hint=hint)
        with make_client(url, args.token, patience_s or PATIENCE_S) as client:
            yield client
        return
    from compatgate.web.local_gate import LocalClient

    with LocalClient.open(args.database, name=name or author, make=make) as local:
        yield local.client


def run_action(
    args: argparse.Namespace,
    actions: Mapping[str, Callable[[argparse.Namespace, Client], int]],
    *,
    making: Sequence[str] = (),
    name: str | None = None,
) -> int:
    """Run the chosen action with the gate that the arguments name; ``name`` as of `gate_of`.

    The actions in ``making`` create a database where there is none.
    """
    with gate_of(args, name=name, make=args.action in making) as gate:
        return actions[args.action](args, gate)


def run_row(args: argparse.Namespace, row: Row, *, name: str | None = None, **more: Any) -> int:
    """Run a command that asks one operation; arguments and errors as `ask_row`."""
    from compatgate.kit.cli.commands import print_answer

    return print_answer(args.format, row, ask_row(args, row, name=name, **more))


def ask_row(args: argparse.Namespace, row: Row, *, name: str | None = None, **more: Any) -> Any:
    """Return the answer to a command that asks one operation; ``name`` as of `gate_of`.

    ``more`` are arguments of the operation that no option of the row names.
    """
    from compatgate.kit.cli.commands import name_option, values_of

    values = values_of(args, row) | more
    try:
        with gate_of(args, name=name, make=row.make) as gate:
            operation: Any = getattr(Operations, row.operation)
            if row.declared.form == "pages":
                return ask_all(gate, args.limit, operation, **values)
            return ask(gate, operation, **values)
    except CompatgateError as error:
        name_option(error, row)
        raise


@contextmanager
def open_rooms(
    args: argparse.Namespace,
    *,
    make: bool = False,
    overlays: Sequence[str] | None = None,
    images: ImageSettings | None = None,
) -> Iterator[Rooms]:
    """Open the rooms on the database that the arguments name."""
    from compatgate.service.app import open_rooms

    rooms = open_rooms(args.database, make=make, overlays=overlays, images=images)
    try:
        yield rooms
    finally:
        rooms.close()


def drop_members(names: Iterable[str], body: Body) -> Body:
    """Return a JSON object without some of its members."""
    return {name: value for name, value in body.items() if name not in names}


def drop_storage_members(body: Body) -> Body:
    """Return the document of an answer in the form of files."""
    return drop_members(_STORAGE_MEMBERS, body)
