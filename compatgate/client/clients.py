"""Send operations, retry them where that is safe, and read streams of lines and events."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any, Self, TypeVar

import httpx
import msgspec
from msgspec import Struct

from compatgate.client import answers
from compatgate.client.answers import Answer, check_size
from compatgate.client.operations import Operations
from compatgate.client.request import Items, Request
from compatgate.client.settings import TIMEOUT_S, Retries, Verify, make_settings, tls
from compatgate.errors import (
    BadInput,
    CompatgateError,
    DamagedContent,
    RegistryTimeout,
    RequestTooLarge,
    Unavailable,
    quote_error,
)
from compatgate.kit.http.schemas import Page
from compatgate.strict_json import DECODE_ERRORS

A = TypeVar("A")
T = TypeVar("T")
Attempt = tuple[httpx.Response, bytes]
"""A response, and its body if it was read."""
_HINT = "check that it runs and is reachable"
_NOT_SENT = (httpx.InvalidURL, UnicodeError, httpx.UnsupportedProtocol, httpx.LocalProtocolError)
LONGEST_LINE = 16 * 1024 * 1024
_LAST = ("end", "error")


class Client(Operations):
    """A client of a gate's REST API, safe for use by several threads.

    Every operation of the API is a method, named by its ``operationId``. Methods raise
    `compatgate.errors`: the gate's errors, and `Unavailable` if the gate does not answer.

    Args:
        base_url: URL of the gate; None: ``COMPATGATE_SERVER``.
        token: access token; None: ``COMPATGATE_TOKEN``.
        timeout: seconds to wait for the connection, and for each part of an answer.
        retries: retries of repeatable requests: a number, or `Retries`.
        verify: certificate authorities for the gate: a PEM file or a folder; True: the system's.
        user_agent: name of the program, put before the client's.
        transport: httpx transport, to reach the gate in another way.

    Raises:
        BadInput: no gate is named, or an argument is malformed.
    """

    def __init__(
        self,
        base_url: str | None = None,
        token: str | None = None,
        *,
        timeout: float = TIMEOUT_S,
        retries: Retries | int = Retries(),  # noqa: B008 - immutable
        verify: Verify = True,
        user_agent: str | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._settings = make_settings(base_url, token, timeout, retries, user_agent)
        context = tls(self.base_url, verify)
        try:  # without redirections, to protect the token
            self._http = httpx.Client(verify=context, transport=transport, follow_redirects=False)
        except (ImportError, ValueError) as error:
            what = f"the proxy cannot be used: {quote_error(error)}"
            raise BadInput(what, field="proxy") from None

    @property
    def base_url(self) -> str:
        """Return the URL of the gate, without ``/api/v1``."""
        return self._settings.base

    def send(self, request: Request[A]) -> A:
        """Return the answer to a request, such as ``Client.show_target.request("prod")``."""
        return self.exchange(request).value

    def exchange(self, request: Request[A], *, if_none_match: str | None = None) -> Answer[A]:
        """Return the answer with its entity tag; ``if_none_match`` is that of the known version."""
        return self._read(request, self._try(request, if_none_match))

    def items(self, request: Request[Page[T]]) -> Items[T]:
        """Return a list, such as ``Client.list_targets.request()``."""
        return Items(self, request)

    def lines(self, request: Request[str]) -> Iterator[str]:
        """Yield the lines of an answer as they arrive; raise as `send`, also between lines."""
        response, body = self._try(request, streamed=True)
        lines = LineSplitter()
        try:
            if not response.is_success:
                self._read(request, (response, body))
            with translate_errors(self.base_url):
                for part in response.iter_bytes():
                    yield from lines.feed(part)
            yield from lines.rest()
        finally:
            response.close()

    def follow_run(
        self, run_id: str, *, step: str | None = None, after: int = 0
    ) -> Iterator[Event]:
        """Yield the events of a run until ``end``; resume a broken stream.

        Args:
            run_id: id of the run.
            step: only this step's output.
            after: id of the last known event.
        """
        following = RunEvents(run_id, step, after)
        while not following.ended:
            request = following.request()
            try:
                for line in self.lines(request):
                    if event := following.take(line):
                        yield event
            except Unavailable as error:
                following.broke(error)
            if not following.ended:
                time.sleep(self._settings.retries.first_s)

    def _read(self, request: Request[A], tried: Attempt) -> Answer[A]:
        token = self._settings.token is not None
        return answers.read(request, *tried, self.base_url, token=token)

    def close(self) -> None:
        """Close connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _try(
        self, request: Request[Any], if_none_match: str | None = None, *, streamed: bool = False
    ) -> Attempt:
        prepared = self._settings.prepare(request, if_none_match)
        pause_after = partial(self._settings.retries.pause, repeatable=request.repeatable)
        with translate_errors(self.base_url):
            for number in count(1):
                try:
                    tried = self._once(prepared, streamed)
                    pause = pause_after(number, tried[0])
                except httpx.HTTPError as error:
                    if (pause := pause_after(number, error)) is None:
                        raise
                if pause is None:
                    return tried
                time.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    def _once(self, prepared: dict[str, Any], streamed: bool) -> Attempt:
        response = self._http.send(self._http.build_request(**prepared), stream=True)
        if streamed and response.is_success:
            return response, b""
        try:
            body = bytearray()
            for part in response.iter_bytes():
                body += part
                check_size(body, self.base_url)
            return response, bytes(body)
        finally:
            response.close()


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
