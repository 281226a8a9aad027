"""Make a client as commands do, and ask it: a stored sign-in counts, errors name the option."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, ParamSpec

from compatgate.errors import BadInput

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

    from compatgate.client import Client
    from compatgate.client.request import Operation

P = ParamSpec("P")
Body = dict[str, Any]
PAGE = 500
"""Page size for commands that ask for all items."""
PATIENCE_S = 60.0
"""Timeout of slow answers, in seconds."""


def make_client(
    url: str,
    token: str | None = None,
    timeout_s: float = PATIENCE_S,
    *,
    retries: int = 3,
    app: WSGIApplication | None = None,
    stored: bool = True,
    verify: str | bool = True,
) -> Client:
    """Make a client of the gate at a URL; errors name the option.

    Args:
        token: access token; None: ``COMPATGATE_TOKEN``, else the session of ``compatgate login``.
        timeout_s: seconds to wait for the connection, and for each part of an answer.
        app: answers in this process, instead of the network.
        stored: use the session of ``compatgate login``.
        verify: PEM file of the authorities; True: the system's.
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
            verify=verify,
            user_agent="compatgate-cli",
            transport=WSGITransport(app) if app else None,
        )
    except BadInput as error:
        if error.field in ("server", "token", "timeout"):
            error.field = f"--{error.field}"
        raise


def _stored_secret(url: str) -> str | None:
    """Return the session of ``compatgate login`` at a gate; None: a token goes first."""
    from compatgate.client.settings import TOKEN, base_of, load_credential

    credential = None if os.environ.get(TOKEN) else load_credential(base_of(url))
    return credential.secret if credential else None


def import_httpx() -> None:
    """Import httpx without its command line, whose libraries cost as much as everything else."""
    import_without("httpx", "click")


def import_without(module: str, optional: str) -> None:
    """Import a library while one of its optional dependencies seems not to be installed.

    Nothing is hidden where either is imported already.
    """
    hide = optional not in sys.modules and module not in sys.modules
    if hide:
        sys.modules[optional] = None  # type: ignore[assignment]
    try:
        import_module(module)
    finally:
        if hide:
            del sys.modules[optional]


def ask(
    gate: Client, operation: Operation[P, Any, Any], /, *args: P.args, **named: P.kwargs
) -> dict[str, Any]:
    """Call an operation of the gate; return the JSON object of the answer."""
    answer: Body = gate.send(operation.request(*args, **named).plain())
    return answer


def ask_all(
    gate: Client,
    limit: int | None,
    listing: Operation[P, Any, Any],
    /,
    *args: P.args,
    **named: P.kwargs,
) -> list[Body]:
    """Return the items of a list of the gate, read page by page; ``limit`` None: all items."""
    items = gate.items(listing.request(*args, **named).plain())
    size = PAGE if limit is None else min(PAGE, limit)
    pages = (page.items for page in items.pages(size=size))
    return [*islice(chain.from_iterable(pages), limit)]
