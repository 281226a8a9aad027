"""What an API server says that another attempt, or whoever asked, may make something of."""

from __future__ import annotations

from typing import Any

import msgspec

from compatgate.errors import Conflict, Infrastructure, NotFound

TRY_AGAIN = (429, 500, 502, 503, 504)
"""Statuses of a server that cannot answer just then."""
_LONGEST_PAUSE_S = 30.0


class Busy(Infrastructure):
    """The server cannot answer now; it may have said for how long."""

    retry_after: float | None = None


class Missing(NotFound):
    """There is no such thing."""


class Taken(Conflict):
    """There is a thing of that name."""


class Gone(Infrastructure):
    """The server has forgotten the version that a watch began at: list again."""


def pause_after(error: Busy, pause: float | None) -> float | None:
    """How long to wait before the request is made again; None: it is not.

    Args:
        error: that ended it.
        pause: the next one of ours; None: there is none left.
    """
    if pause is None:
        return None
    asked = error.retry_after
    if asked is not None and asked > _LONGEST_PAUSE_S:
        return None
    return max(pause, asked or 0.0)


def busy(problem: str, error: Any) -> Busy:
    """A refusal of `TRY_AGAIN`, with the time that the server asked for."""
    found = Busy(problem)
    header = (error.headers or {}).get("Retry-After")
    found.retry_after = float(header) if header and header.isdecimal() else None
    return found


def said(body: Any) -> str:
    """The message of a ``Status`` object, in one line."""
    try:
        status = msgspec.json.decode(body or b"")
        message = status.get("message") if isinstance(status, dict) else None
    except (msgspec.DecodeError, TypeError):
        message = body.decode(errors="replace") if isinstance(body, bytes) else body
    return " ".join(str(message or "").split())[:1000]
