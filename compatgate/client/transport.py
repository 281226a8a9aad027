"""Do what both clients do alike: attempts, httpx's errors as ours, and streams of events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import httpx
import msgspec
from msgspec import Struct

from compatgate.client import answers
from compatgate.client.answers import Answer, Received
from compatgate.client.operations.runs import show_logs
from compatgate.client.request import Request
from compatgate.client.settings import Outcome, Settings, Verify, tls
from compatgate.errors import BadInput, CompatgateError, Damaged, TimedOut, TooLarge, Unavailable
from compatgate.strict_json import NOT_JSON

A = TypeVar("A")
H = TypeVar("H", httpx.Client, httpx.AsyncClient)
_HINT = "check that it runs and is reachable"


class Attempt(Struct, frozen=True):
    """An answer's head, and its body where that was read."""

    response: httpx.Response
    body: bytes = b""

    def received(self) -> Received:
        """Return the answer as it came."""
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
        """Return seconds until it is tried again; None: it is not, the answer stands.

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

    def _read(self, request: Request[A], tried: Attempt) -> Answer[A]:
        settings = self._settings
        token = settings.token is not None
        return answers.read(request, tried.received(), settings.base, token=token)


def make_http(kind: Callable[..., H], settings: Settings, verify: Verify, transport: Any) -> H:
    """Return the client of httpx that sends; redirections are not followed, for the token's sake.

    Raises:
        BadInput: authorities cannot be read, or a proxy of the environment cannot be used.
    """
    context = tls(settings.base, verify)
    try:
        return kind(verify=context, transport=transport, follow_redirects=False)
    except (ImportError, ValueError) as error:
        raise BadInput(f"the proxy cannot be used: {error}", field="proxy") from None


@contextmanager
def translate_errors(base: str) -> Iterator[None]:
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


LONGEST_LINE = 16 * 1024 * 1024
_LAST = ("end", "error")


class Lines:
    """Cuts a stream into lines, each with its line feed; nothing else ends one."""

    def __init__(self) -> None:
        self._begun: list[bytes] = []
        self._size = 0

    def feed(self, part: bytes) -> list[str]:
        """Return the lines that a part completes.

        Raises:
            TooLarge: a line does not end.
        """
        *whole, rest = part.split(b"\n")
        if whole:
            whole[0] = b"".join([*self._begun, whole[0]])
            self._begun, self._size = [], 0
        self._begun.append(rest)
        self._size += len(rest)
        if self._size > LONGEST_LINE:
            raise TooLarge(f"a line is longer than {LONGEST_LINE} bytes")
        return [line.decode("utf-8", "replace") + "\n" for line in whole]

    def rest(self) -> list[str]:
        """What stands after the last line feed."""
        text = b"".join(self._begun).decode("utf-8", "replace")
        self._begun, self._size = [], 0
        return [text] if text else []


class Event(Struct, frozen=True):
    """Something that happened to a run.

    Attributes:
        name: ``output`` (``data`` has ``step``, ``attempt`` and ``text``), ``state``, and last
            ``end``, both with ``state`` and ``reason``; ``error`` where the gate cannot go on.
        id: of output, to go on from.
    """

    name: str
    data: dict[str, Any] = {}
    id: int | None = None


class Following:
    """A run's events over as many streams as that takes: one may end before the run does.

    Args:
        run_id: of the run.
        step: only this step's output.
        after: id of the last event known.
    """

    def __init__(self, run_id: str, step: str | None, after: int) -> None:
        self._run_id = run_id
        self._step = step
        self._after = after
        self._name = ""
        self._id: int | None = None
        self._heard: bool | None = None
        self._broken: CompatgateError | None = None
        self.ended = False

    def request(self) -> Request[str]:
        """Return the stream from here on.

        Raises:
            CompatgateError: the one before said nothing: it would go on so for ever.
        """
        if self._heard is False:
            silent = "the gate ended the log's stream without a word"
            raise self._broken or Unavailable(silent, field=self._run_id)
        self._heard, self._broken = False, None
        return show_logs.request(self._run_id, follow=True, step=self._step, after=self._after)

    def take(self, line: str) -> Event | None:
        """Return the event that a line completes.

        Raises:
            Damaged: what the gate sends is none.
        """
        self._heard = True
        key, _, value = line.rstrip("\r\n").partition(": ")
        if key == "event":
            self._name, self._id = value, None
        elif key == "id" and value.isascii() and value.isdigit():
            self._id = int(value)
        elif key == "data":
            return self._complete(value)
        return None

    def broke(self, error: CompatgateError) -> None:
        """The stream broke; it is taken up again unless it had not begun."""
        self._broken = error

    def _complete(self, value: str) -> Event:
        try:
            data = msgspec.json.decode(value, type=dict[str, Any])
        except NOT_JSON:
            what = "the gate sent an event that is none; is it a gate?"
            raise Damaged(what, field=self._run_id) from None
        self._after = self._after if self._id is None else self._id
        self.ended = self._name in _LAST
        return Event(self._name, data, self._id)
