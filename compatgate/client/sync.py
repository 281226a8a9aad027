"""The client whose methods return answers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Self, TypeVar

import httpx

from compatgate.client.answers import Answer, Gathered
from compatgate.client.operation import Blocking
from compatgate.client.operations import Operations
from compatgate.client.paging import Items
from compatgate.client.request import Request
from compatgate.client.retries import Retries
from compatgate.client.settings import TIMEOUT_S, Verify, make_settings
from compatgate.client.streams import Event, Following, Lines
from compatgate.client.transport import Attempts, Configured, Tried, asking, make_http
from compatgate.errors import Unavailable
from compatgate.wire.matrix import Page

A = TypeVar("A")
T = TypeVar("T")


class Client(Configured, Blocking, Operations):
    """A gate's REST interface; may be shared by threads.

    Every operation of the API is a method, named by its ``operationId``. Methods raise
    `compatgate.errors`: the same errors that the gate has, and `Unavailable` where there is none.

    Args:
        base_url: of the gate; None: ``COMPATGATE_SERVER``.
        token: access token; None: ``COMPATGATE_TOKEN``.
        timeout: seconds to wait for the connection, and for each part of an answer.
        retries: of requests that may be repeated; a number, or when and how.
        verify: authorities that vouch for the gate: a PEM file or a folder; True: the system's.
        user_agent: of the program, before the client's own.
        transport: httpx's, to reach the gate in another way.

    Raises:
        BadInput: no gate is named, or one of these is wrong.
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
        self._http = make_http(httpx.Client, self._settings, verify, transport)

    def send(self, request: Request[A]) -> A:
        """The answer to a request, such as ``Client.show_target.request("prod")``.

        Raises:
            CompatgateError: the gate refuses, with its explanation.
            Unavailable: it does not answer.
        """
        return self.exchange(request).value

    def exchange(self, request: Request[A], *, if_none_match: str | None = None) -> Answer[A]:
        """The answer with its entity tag; raises as `send`.

        Args:
            request: as `send`.
            if_none_match: entity tag of what is known already.
        """
        return self._read(request, self._try(request, if_none_match))

    def items(self, request: Request[Page[T]]) -> Items[T]:
        """A list, such as ``Client.list_targets.request()``."""
        return Items(self, request)

    def lines(self, request: Request[str]) -> Iterator[str]:
        """An answer line by line, as it comes; raises as `send`, also in its midst."""
        tried = self._try(request, streamed=True)
        response, lines = tried.response, Lines()
        try:
            if not response.is_success:
                self._read(request, tried)
            with asking(self.base_url):
                for part in response.iter_bytes():
                    yield from lines.feed(part)
            yield from lines.rest()
        finally:
            response.close()

    def follow_run(
        self, run_id: str, *, step: str | None = None, after: int = 0
    ) -> Iterator[Event]:
        """What happens to a run, until ``end``; a stream that breaks is taken up again.

        Args:
            run_id: of the run.
            step: only this step's output.
            after: id of the last event known.
        """
        following = Following(run_id, step, after)
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

    def close(self) -> None:
        """Close connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _try(
        self, request: Request[Any], if_none_match: str | None = None, *, streamed: bool = False
    ) -> Tried:
        """What came of a request, tried again as often as the settings say."""
        prepared = self._settings.prepare(request, if_none_match)
        attempts = Attempts(self._settings, request)
        with asking(self.base_url):
            while True:
                try:
                    tried = self._once(prepared, streamed)
                    pause = attempts.pause(tried.response)
                except httpx.HTTPError as error:
                    pause = attempts.pause(error)
                if pause is None:
                    return tried
                time.sleep(pause)

    def _once(self, prepared: dict[str, Any], streamed: bool) -> Tried:
        response = self._http.send(self._http.build_request(**prepared), stream=True)
        if streamed and response.is_success:
            return Tried(response)
        try:
            gathered = Gathered(self.base_url)
            for part in response.iter_bytes():
                gathered.add(part)
            return Tried(response, gathered.whole())
        finally:
            response.close()
