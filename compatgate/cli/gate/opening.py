"""Ask the gate that a command names: a server, or the local database behind the same client.

Answers are the gate's own JSON: ``--format json`` prints an answer unchanged, including members
that only a newer gate knows. Commands that need the database itself, such as the worker, use
`open_gate`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, ParamSpec

from compatgate.errors import BadInput, CompatgateError
from compatgate.kit.cli.parser import add_server, server_of
from compatgate.kit.imports import import_without

if TYPE_CHECKING:
    import argparse

    from _typeshed.wsgi import WSGIApplication

    from compatgate.client import Client
    from compatgate.client.derived import Operation
    from compatgate.client.operations import Operations as Operations
    from compatgate.kit.cli.commands import Row
    from compatgate.service.gate.questions.images import ImageSettings
    from compatgate.service.gate.questions.service import Gate
else:

    class _Operations:
        """`Operations`, imported at its first use: once the command is connected.

        `make_client` imports httpx without the libraries of httpx's own command line.
        """

        def __getattr__(self, name: str) -> Any:
            from compatgate.client.operations import Operations

            return getattr(Operations, name)

    Operations = _Operations()

P = ParamSpec("P")
Body = dict[str, Any]
PAGE = 500
"""Page size for commands that ask for all items."""
PATIENCE_S = 60.0
"""Timeout of slow answers, in seconds."""
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


def ask(
    gate: Client, operation: Operation[P, Any, Any, Any], /, *args: P.args, **named: P.kwargs
) -> dict[str, Any]:
    """Call an operation of the gate; return the JSON object of the answer."""
    answer: Body = gate.send(operation.request(*args, **named).plain())
    return answer


def ask_all(
    gate: Client,
    limit: int | None,
    listing: Operation[P, Any, Any, Any],
    /,
    *args: P.args,
    **named: P.kwargs,
) -> list[Body]:
    """Return the items of a list of the gate, read page by page; ``limit`` None: all items."""
    items = gate.items(listing.request(*args, **named).plain())
    size = PAGE if limit is None else min(PAGE, limit)
    pages = (page.items for page in items.pages(size=size))
    return [*islice(chain.from_iterable(pages), limit)]


def make_client(
    url: str,
    token: str | None = None,
    timeout_s: float = PATIENCE_S,
    *,
    retries: int = 3,
    app: WSGIApplication | None = None,
    stored: bool = True,
) -> Client:
    """Make a client of the gate at a URL; errors name the option.

    Args:
        token: access token; None: ``COMPATGATE_TOKEN``, else the session of ``compatgate login``.
        timeout_s: seconds to wait for the connection, and for each part of an answer.
        app: answers in this process, instead of the network.
        stored: use the session of ``compatgate login``.
    """
    import_httpx()
    from httpx import WSGITransport

    from compatgate.client import Client

    try:
        return Client(
            url,
            token or (_stored_secret(url) if stored and not app else None),
            timeout=timeout_s,
            retries=retries,
            user_agent="compatgate-cli",
            transport=WSGITransport(app) if app else None,
        )
    except BadInput as error:
        if error.field in ("server", "token", "timeout"):
            error.field = f"--{error.field}"
        raise


def _stored_secret(url: str) -> str | None:
    """Return the session of ``compatgate login`` at a gate; None: a token goes first."""
    from compatgate.client.settings import TOKEN, base_of
    from compatgate.service.access.identity.credentials import load

    credential = None if os.environ.get(TOKEN) else load(base_of(url))
    return credential.secret if credential else None


def import_httpx() -> None:
    """Import httpx without its command line, whose libraries cost as much as everything else."""
    import_without("httpx", "click")


@contextmanager
def open_gate(
    args: argparse.Namespace,
    *,
    make: bool = False,
    overlays: Sequence[str] | None = None,
    images: ImageSettings | None = None,
) -> Iterator[Gate]:
    """Open the gate on the database that the arguments name, with the options of `Gate.open`."""
    from compatgate.service.gate.questions.service import Gate

    gate = Gate.open(args.database, make=make, overlays=overlays, images=images)
    try:
        yield gate
    finally:
        gate.close()


def drop_members(names: Iterable[str], body: Body) -> Body:
    """Return a JSON object without some of its members."""
    return {name: value for name, value in body.items() if name not in names}


def drop_storage_members(body: Body) -> Body:
    """Return the document of an answer in the form of files."""
    return drop_members(_STORAGE_MEMBERS, body)
