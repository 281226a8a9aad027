"""The gate that a command asks: a server, or the local database behind the same client.

Answers are the gate's own JSON: ``--format json`` prints it as it came, with the members that only
a newer gate knows. Commands import `Operations` once they are connected, because
`compatgate.cli.remote` imports httpx without the libraries of httpx's own command line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, ParamSpec

from compatgate.cli.parser import add_server, server_of

if TYPE_CHECKING:
    import argparse

    from compatgate.client import Client
    from compatgate.client.operation import Listing, Operation

P = ParamSpec("P")
Body = dict[str, Any]
PAGE = 500
"""Items of a page, where a command asks for all of them."""


def add_place(*parsers: argparse.ArgumentParser) -> None:
    """Add the options that say who is asked: a gate, or a database."""
    from compatgate.cli.database import add_database

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
        args: of the command.
        name: who asks the database; None: ``--author``, else this machine's user. A server knows
            the caller by the token.
        make: an SQLite file that is not there is made.
        patience_s: seconds that a server may take; None: as usual.

    Raises:
        BadInput: several places are named, the server's URL is none, or a server is given an
            author.
        NotFound: there is no such database.
        Unavailable: the database does not answer, or has another schema.
    """
    from compatgate.cli.remote import PATIENCE_S, make_client
    from compatgate.errors import BadInput

    author = getattr(args, "author", None)
    if url := server_of(args):
        if author:
            hint = "leave it out: the token says who it was"
            raise BadInput("a server takes no author", field="--author", value=author, hint=hint)
        with make_client(url, args.token, patience_s or PATIENCE_S) as client:
            yield client
        return
    from compatgate.cli.local import Local

    with Local.open(args.database, name=name or author, make=make) as local:
        yield local.client


def perform(
    args: argparse.Namespace,
    actions: Mapping[str, Callable[[argparse.Namespace, Client], int]],
    *,
    making: Sequence[str] = (),
    name: str | None = None,
) -> int:
    """Do the action that was asked for, with the gate that the arguments name.

    Args:
        args: of the command.
        actions: by name.
        making: those that make a database where there is none.
        name: as of `gate_of`.

    Raises:
        CompatgateError: as `gate_of`, and whatever the gate refuses.
    """
    with gate_of(args, name=name, make=args.action in making) as gate:
        return actions[args.action](args, gate)


def ask(
    gate: Client, operation: Operation[P, Any], /, *args: P.args, **named: P.kwargs
) -> dict[str, Any]:
    """Return the JSON object that answers an operation of the gate.

    Raises:
        CompatgateError: as `Client.send`.
    """
    answer: Body = gate.send(operation.request(*args, **named).plain())
    return answer


def ask_all(
    gate: Client, limit: int | None, listing: Listing[P, Any], /, *args: P.args, **named: P.kwargs
) -> list[Body]:
    """Return the items of a list of the gate, page after page; ``limit`` None: all of them.

    Raises:
        CompatgateError: as `Client.send`.
    """
    items = gate.items(listing.request(*args, **named).plain())
    size = PAGE if limit is None else min(PAGE, limit)
    pages = (page.items for page in items.pages(size=size))
    return [*islice(chain.from_iterable(pages), limit)]
