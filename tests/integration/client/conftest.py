"""A running service that both forms of the client ask, and the workers' side of its database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from inspect import isawaitable
from pathlib import Path
from typing import Any

import pytest
from attest_keys import new_key, private_pem
from serving import Server, start, wait_for_url, with_examples

from compatgate.client import AsyncClient, Client
from compatgate.service.app import Rooms, open_rooms

Call = Callable[..., Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the service keeps its database."""
    return tmp_path_factory.mktemp("client")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    """A running service with the example matrix, for all tests of a file."""
    key = folder / "key.pem"
    key.touch(mode=0o600)
    key.write_bytes(private_pem(new_key()))
    options = ["--signing-key", str(key)]
    running = start(folder, with_examples(folder, options), False, {})
    wait_for_url(running)
    yield running
    running.kill()


@pytest.fixture(scope="module")
def url(server: Server) -> str:
    """Where it is."""
    return f"http://{server.host}:{server.port}"


@pytest.fixture(scope="module")
def worker(server: Server, folder: Path) -> Iterator[Rooms]:
    """The database as a worker process opens it."""
    rooms = open_rooms(str(folder / "gate.db"), overlays=[])
    yield rooms
    rooms.close()


@pytest.fixture
def client(server: Server, url: str) -> Iterator[Client]:
    """A client that may do anything."""
    with Client(url, server.token) as made:
        yield made


@pytest.fixture(params=["sync", "async"])
def form(request: pytest.FixtureRequest) -> str:
    """The form of the client: answers, or what is to be awaited."""
    return str(request.param)


@pytest.fixture
def call(form: str, server: Server, url: str) -> Iterator[Call]:
    """Calls a method by its name, in either form; lists and streams are read to their end."""
    if form == "sync":
        with Client(url, server.token) as made:
            yield lambda operation, /, *args, **named: _whole(
                getattr(made, operation)(*args, **named)
            )
        return
    with asyncio.Runner() as runner:
        later = AsyncClient(url, server.token)
        yield lambda operation, /, *args, **named: runner.run(
            _awaited(getattr(later, operation)(*args, **named))
        )
        runner.run(later.close())


def _whole(answer: Any) -> Any:
    lazy = hasattr(answer, "pages") or isinstance(answer, Iterator)
    return list(answer) if lazy else answer


async def _awaited(answer: Any) -> Any:
    if hasattr(answer, "pages") or isinstance(answer, AsyncIterator):
        return [item async for item in answer]
    return await answer if isawaitable(answer) else answer
