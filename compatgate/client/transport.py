"""What both clients do alike: settings, when to try again, answers read, httpx's errors as ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import httpx
from msgspec import Struct

from compatgate.client import answers
from compatgate.client.answers import Answer, Received
from compatgate.client.request import Request
from compatgate.client.retries import Outcome
from compatgate.client.settings import Settings, Verify, tls
from compatgate.errors import BadInput, TimedOut, Unavailable

A = TypeVar("A")
H = TypeVar("H", httpx.Client, httpx.AsyncClient)
_HINT = "check that it runs and is reachable"


class Tried(Struct, frozen=True):
    """An answer's head, and its body where that was read."""

    response: httpx.Response
    body: bytes = b""

    def received(self) -> Received:
        """The answer as it came."""
        return Received(self.response.status_code, self.response.headers, self.body)


class Attempts:
    """How often a request was tried.

    Args:
        settings: say how often it may be.
        request: that is tried.
    """

    def __init__(self, settings: Settings, request: Request[Any]) -> None:
        self._retries = settings.retries
        self._repeatable = request.repeatable
        self._number = 0

    def pause(self, outcome: Outcome) -> float | None:
        """Seconds until it is tried again; None: it is not, the answer stands.

        Raises:
            httpx.HTTPError: it is not, and there was no answer.
        """
        self._number += 1
        pause = self._retries.pause(self._number, outcome, repeatable=self._repeatable)
        if pause is None and isinstance(outcome, Exception):
            raise outcome
        return pause


class Configured:
    """A client, as far as it goes without sending."""

    _settings: Settings

    @property
    def base_url(self) -> str:
        """Of the gate, without ``/api/v1``."""
        return self._settings.base

    def _read(self, request: Request[A], tried: Tried) -> Answer[A]:
        settings = self._settings
        token = settings.token is not None
        return answers.read(request, tried.received(), settings.base, token=token)


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
