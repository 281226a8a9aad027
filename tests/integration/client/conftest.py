"""A running service that the client asks, and the workers' side of its database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from attest_keys import new_key, private_pem
from serving import Server, start, wait_for_url, with_examples

from compatgate.client import Client
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


@pytest.fixture
def call(client: Client) -> Call:
    """Calls a method by its name; lists and streams are read to their end."""
    return lambda operation, /, *args, **named: _whole(getattr(client, operation)(*args, **named))


def _whole(answer: Any) -> Any:
    lazy = hasattr(answer, "pages") or isinstance(answer, Iterator)
    return list(answer) if lazy else answer
