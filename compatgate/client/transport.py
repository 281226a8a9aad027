"""Translate httpx's errors, and read streams of lines and events."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import msgspec
from msgspec import Struct

from compatgate.client.operations import Operations
from compatgate.client.request import Request
from compatgate.errors import (
    BadInput,
    CompatgateError,
    DamagedContent,
    RegistryTimeout,
    RequestTooLarge,
    Unavailable,
    quote_error,
)
from compatgate.strict_json import DECODE_ERRORS

_HINT = "check that it runs and is reachable"
_NOT_SENT = (httpx.InvalidURL, UnicodeError, httpx.UnsupportedProtocol, httpx.LocalProtocolError)
LONGEST_LINE = 16 * 1024 * 1024
_LAST = ("end", "error")


@contextmanager
def translate_errors(base: str) -> Iterator[None]:
    """Translate errors of httpx to `compatgate.errors`."""
    try:
        yield
    except _NOT_SENT as error:
        raise BadInput(f"the request cannot be sent: {quote_error(error)}", field=base) from None
    except httpx.TimeoutException:
        what = "the gate does not answer: timed out"
        raise RegistryTimeout(what, field=base, hint=_HINT) from None
    except (httpx.HTTPError, httpx.StreamError) as error:
        what = f"the gate does not answer: {quote_error(error)}"
        raise Unavailable(what, field=base, hint=_HINT) from None


class LineSplitter:
    """A splitter of a stream into lines; only a line feed ends a line, and it is kept."""

    def __init__(self) -> None:
        self._begun: list[bytes] = []
        self._size = 0

    def feed(self, part: bytes) -> list[str]:
        """Return the lines that a part completes."""
        *whole, rest = part.split(b"\n")
        if whole:
            whole[0] = b"".join([*self._begun, whole[0]])
            self._begun, self._size = [], 0
        self._begun.append(rest)
        self._size += len(rest)
        if self._size > LONGEST_LINE:
            raise RequestTooLarge(f"a line is longer than {LONGEST_LINE} bytes")
        return [line.decode("utf-8", "replace") + "\n" for line in whole]

    def rest(self) -> list[str]:
        """Return the text after the last line feed."""
        text = b"".join(self._begun).decode("utf-8", "replace")
        self._begun, self._size = [], 0
        return [text] if text else []


class Event(Struct, frozen=True):
    """An event of a run; ``id``: of output, from which to resume.

    ``name`` is ``output`` (``data`` has ``step``, ``attempt`` and ``text``), ``state``, and last
    ``end``, both with ``state`` and ``reason``; ``error`` if the gate fails.
    """

    name: str
    data: dict[str, Any] = {}
    id: int | None = None


class RunEvents:
    """A run's events over several streams, since a stream may end before the run."""

    def __init__(self, run_id: str, step: str | None, after: int) -> None:
        self._run_id = run_id
        self._step = step
        self._after = after
        self._name = ""
        self._id: int | None = None
        self._received: bool | None = None
        self._broken: CompatgateError | None = None
        self.ended = False

    def request(self) -> Request[str]:
        """Return the request for the rest of the stream; raise if the previous one was empty."""
        if self._received is False:
            silent = "the gate ended the log stream without an event"
            raise self._broken or Unavailable(silent, field=self._run_id)
        self._received, self._broken = False, None
        return Operations.show_logs.request(
            self._run_id, follow=True, step=self._step, after=self._after
        )

    def take(self, line: str) -> Event | None:
        """Return the event that a line completes."""
        self._received = True
        key, _, value = line.rstrip("\r\n").partition(": ")
        if key == "event":
            self._name, self._id = value, None
        elif key == "id" and value.isascii() and value.isdigit():
            self._id = int(value)
        elif key == "data":
            return self._complete(value)
        return None

    def broke(self, error: CompatgateError) -> None:
        """Note that the stream broke; the next one resumes it unless it was empty."""
        self._broken = error

    def _complete(self, value: str) -> Event:
        try:
            data = msgspec.json.decode(value, type=dict[str, Any])
        except DECODE_ERRORS:
            what = "the gate sent a malformed event; check that the URL is a gate's"
            raise DamagedContent(what, field=self._run_id) from None
        self._after = self._after if self._id is None else self._id
        self.ended = self._name in _LAST
        return Event(self._name, data, self._id)
