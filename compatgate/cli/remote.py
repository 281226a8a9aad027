"""The client of a gate as the command line makes it."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from compatgate.errors import BadInput

if TYPE_CHECKING:
    from compatgate.client import Client

PATIENCE_S = 60.0
"""For an answer that need not come at once."""


def make_client(
    url: str, token: str | None = None, timeout_s: float = PATIENCE_S, *, retries: int = 3
) -> Client:
    """A client of the gate at a URL.

    Raises:
        BadInput: what an option or the environment says is no URL, no token or no time.
    """
    _import_httpx()
    from compatgate.client import Client

    try:
        return Client(url, token, timeout=timeout_s, retries=retries, user_agent="compatgate-cli")
    except BadInput as error:
        if error.field in ("server", "token", "timeout"):
            error.field = f"--{error.field}"
        raise


def _import_httpx() -> None:
    """Import httpx without its own command line, whose libraries cost as much as all the rest.

    It goes without where click is not installed.
    """
    hide = "click" not in sys.modules and "httpx" not in sys.modules
    if hide:
        sys.modules["click"] = None  # type: ignore[assignment]
    try:
        import_module("httpx")
    finally:
        if hide:
            del sys.modules["click"]
