"""The client of a gate as the command line makes it."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from compatgate.errors import BadInput

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

    from compatgate.client import Client

PATIENCE_S = 60.0
"""For an answer that need not come at once."""


def make_client(
    url: str,
    token: str | None = None,
    timeout_s: float = PATIENCE_S,
    *,
    retries: int = 3,
    app: WSGIApplication | None = None,
) -> Client:
    """Make a client of the gate at a URL.

    Args:
        url: of the gate.
        token: access token; None: ``COMPATGATE_TOKEN``.
        timeout_s: seconds to wait for the connection, and for each part of an answer.
        retries: times that a request is tried again.
        app: answers in this process, instead of the network.

    Raises:
        BadInput: what an option or the environment says is no URL, no token or no time.
    """
    import_httpx()
    from httpx import WSGITransport

    from compatgate.client import Client

    try:
        return Client(
            url,
            token,
            timeout=timeout_s,
            retries=retries,
            user_agent="compatgate-cli",
            transport=WSGITransport(app) if app else None,
        )
    except BadInput as error:
        if error.field in ("server", "token", "timeout"):
            error.field = f"--{error.field}"
        raise


def import_httpx() -> None:
    """Import httpx without its own command line, whose libraries cost as much as all the rest.

    httpx goes without where click is not installed.
    """
    hide = "click" not in sys.modules and "httpx" not in sys.modules
    if hide:
        sys.modules["click"] = None  # type: ignore[assignment]
    try:
        import_module("httpx")
    finally:
        if hide:
            del sys.modules["click"]
