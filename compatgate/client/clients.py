"""Send operations: `Client` returns answers, `AsyncClient` returns awaitables.

Both classes have the same methods in the same order; shared code is in `transport`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from itertools import count
from typing import Any, Self, TypeVar

import httpx

from compatgate.client.answers import Answer, check_size
from compatgate.client.operations import Operations
from compatgate.client.request import AsyncItems, Items, Request
from compatgate.client.transport import (
    Attempt,
    ClientBase,
    Event,
    LineSplitter,
    RunEvents,
    translate_errors,
)
from compatgate.errors import Unavailable
from compatgate.kit.http.schemas import Page

A = TypeVar("A")
T = TypeVar("T")


class Client(ClientBase[httpx.Client], Operations):
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

    _kind = httpx.Client

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
        tried = self._try(request, streamed=True)
        response, lines = tried.response, LineSplitter()
        try:
            if not response.is_success:
                self._read(request, tried)
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
        """Send a request, with the retries of the settings."""
        prepared = self._settings.prepare(request, if_none_match)
        with translate_errors(self.base_url):
            for number in count(1):
                try:
                    tried = self._once(prepared, streamed)
                    pause = self._pause(request, number, tried.response)
                except httpx.HTTPError as error:
                    if (pause := self._pause(request, number, error)) is None:
                        raise
                if pause is None:
                    return tried
                time.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    def _once(self, prepared: dict[str, Any], streamed: bool) -> Attempt:
        response = self._http.send(self._http.build_request(**prepared), stream=True)
        if streamed and response.is_success:
            return Attempt(response)
        try:
            body = bytearray()
            for part in response.iter_bytes():
                body += part
                check_size(body, self.base_url)
            return Attempt(response, bytes(body))
        finally:
            response.close()


class AsyncClient(ClientBase[httpx.AsyncClient], Operations):
    """An async client of a gate's REST API; arguments, methods and errors as `Client`.

    Iterate lists and logs with ``async for``.
    """

    _kind = httpx.AsyncClient

    async def send(self, request: Request[A]) -> A:
        """Return the answer to a request; see `Client.send`."""
        return (await self.exchange(request)).value

    async def exchange(self, request: Request[A], *, if_none_match: str | None = None) -> Answer[A]:
        """Return the answer with its entity tag; see `Client.exchange`."""
        return self._read(request, await self._try(request, if_none_match))

    def items(self, request: Request[Page[T]]) -> AsyncItems[T]:
        """Return a list, such as ``Client.list_targets.request()``."""
        return AsyncItems(self, request)

    async def lines(self, request: Request[str]) -> AsyncGenerator[str, None]:
        """Yield the lines of an answer as they arrive; raise as `send`, also between lines."""
        tried = await self._try(request, streamed=True)
        response, lines = tried.response, LineSplitter()
        try:
            if not response.is_success:
                self._read(request, tried)
            with translate_errors(self.base_url):
                async for part in response.aiter_bytes():
                    for line in lines.feed(part):
                        yield line
            for line in lines.rest():
                yield line
        finally:
            await response.aclose()

    async def follow_run(
        self, run_id: str, *, step: str | None = None, after: int = 0
    ) -> AsyncIterator[Event]:
        """Yield the events of a run until ``end``; see `Client.follow_run`."""
        following = RunEvents(run_id, step, after)
        while not following.ended:
            request = following.request()
            try:
                async with aclosing(self.lines(request)) as lines:
                    async for line in lines:
                        if event := following.take(line):
                            yield event
            except Unavailable as error:
                following.broke(error)
            if not following.ended:
                await asyncio.sleep(self._settings.retries.first_s)

    async def close(self) -> None:
        """Close connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _try(
        self, request: Request[Any], if_none_match: str | None = None, *, streamed: bool = False
    ) -> Attempt:
        """Send a request, with the retries of the settings."""
        prepared = self._settings.prepare(request, if_none_match)
        with translate_errors(self.base_url):
            for number in count(1):
                try:
                    tried = await self._once(prepared, streamed)
                    pause = self._pause(request, number, tried.response)
                except httpx.HTTPError as error:
                    if (pause := self._pause(request, number, error)) is None:
                        raise
                if pause is None:
                    return tried
                await asyncio.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    async def _once(self, prepared: dict[str, Any], streamed: bool) -> Attempt:
        response = await self._http.send(self._http.build_request(**prepared), stream=True)
        if streamed and response.is_success:
            return Attempt(response)
        try:
            body = bytearray()
            async for part in response.aiter_bytes():
                body += part
                check_size(body, self.base_url)
            return Attempt(response, bytes(body))
        finally:
            await response.aclose()
