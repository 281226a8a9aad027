"""Gates that are broken on purpose, and what was answered compared with the log afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from postgresql import Cluster, programs, running
from serving import Server, start, wait_for_url, with_examples

StartServer = Callable[..., Server]
SLOW_COMMIT = {"commit_delay": "20000", "commit_siblings": "0"}
"""A COMMIT takes long enough to be killed in."""


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[StartServer]:
    """Starts a gate with two workers; each has a state folder of its own."""
    started: list[Server] = []

    def starting(url: str, *options: str, state: str = "state", **environment: str) -> Server:
        folder = tmp_path / state
        folder.mkdir(exist_ok=True)
        arguments = ["--workers", "2", "--database", url, *options]
        server = start(
            folder,
            with_examples(folder, ["--anonymous-rate", "none", *arguments]),
            False,
            environment,
        )
        started.append(server)
        wait_for_url(server)
        return server

    yield starting
    for server in started:
        if server.process.poll() is None:
            server.kill()


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A PostgreSQL server of the test's own, with the schema, that may be broken."""
    found = programs()
    if found is None:
        pytest.fail("no PostgreSQL server: install Debian's postgresql")
    with running(found, schema=True, **SLOW_COMMIT) as cluster:
        yield cluster
