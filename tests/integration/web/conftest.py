"""A running service for each test, or for all tests of a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from serving import Server, start, wait_for_url, with_examples

Serve = Callable[..., Server]


@pytest.fixture
def run_serve(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts the command; ``ready=False`` does not wait for the URL."""
    started: list[Server] = []

    def run(*options: str, ready: bool = True, impatient: bool = False, **env: str) -> Server:
        server = start(tmp_path, options, impatient, env)
        started.append(server)
        if ready:
            wait_for_url(server)
        return server

    yield run
    for server in started:
        if server.process.poll() is None:
            server.kill()


@pytest.fixture
def serve(run_serve: Callable[..., Server], tmp_path: Path) -> Serve:
    """Starts the service on a database of the test's own, with the example matrix."""

    def starting(*options: str, **others: Any) -> Server:
        return run_serve(*with_examples(tmp_path, options), **others)

    return starting


@pytest.fixture
def server(serve: Serve) -> Server:
    """A running service."""
    return serve()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A running service for all tests of a file."""
    folder = tmp_path_factory.mktemp("shared")
    server = start(folder, with_examples(folder, []), False, {})
    wait_for_url(server)
    yield server
    server.kill()
