"""What both clients do with httpx alike: making it, sending to it, and its errors as ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import httpx
from msgspec import Struct

from compatgate.client.answers import Received
from compatgate.client.settings import Settings, Verify, tls
from compatgate.errors import BadInput, TimedOut, Unavailable

H = TypeVar("H", httpx.Client, httpx.AsyncClient)
_HINT = "check that it runs and is reachable"


class Tried(Struct, frozen=True):
    """An answer's head, and its body where that was read."""

    response: httpx.Response
    body: bytes = b""

    def received(self) -> Received:
        """The answer as it came."""
        return Received(self.response.status_code, self.response.headers, self.body)


def make_http(kind: Callable[..., H], settings: Settings, verify: Verify, transport: Any) -> H:
    """The client of httpx that sends; redirections are not followed, for the token's sake.

    Raises:
        BadInput: authorities cannot be read, or a proxy of the environment cannot be used.
    """
    context = tls(settings.base, verify)
    try:
        return kind(verify=context, transport=transport, follow_redirects=False)
    except (ImportError, ValueError) as error:
        raise BadInput(f"the proxy cannot be used: {error}", field="proxy") from None


@contextmanager
def asking(base: str) -> Iterator[None]:
    """Around whatever httpx does: its errors become ours.

    Raises:
        Unavailable: the gate does not answer.
        BadInput: nothing could be sent.
    """
    try:
        yield
    except httpx.HTTPError as error:
        raise _failed(error, base) from None
    except (httpx.InvalidURL, UnicodeError) as error:
        raise BadInput(f"the request cannot be sent: {error}", field=base) from None
    except httpx.StreamError as error:
        raise Unavailable(f"the gate does not answer: {error}", field=base, hint=_HINT) from None


def _failed(error: httpx.HTTPError, base: str) -> BadInput | Unavailable:
    if isinstance(error, httpx.TimeoutException):
        return TimedOut("the gate does not answer: timed out", field=base, hint=_HINT)
    if isinstance(error, httpx.UnsupportedProtocol | httpx.LocalProtocolError):
        return BadInput(f"the request cannot be sent: {error}", field=base)
    reason = str(error) or type(error).__name__
    return Unavailable(f"the gate does not answer: {reason}", field=base, hint=_HINT)
