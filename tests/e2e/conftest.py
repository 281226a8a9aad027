"""The real server and the real command, as a pipeline uses them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from asking import ask, facts, gpus, now, pool_of, stack_of  # noqa: F401 - fixtures
from catalogue import own_cache
from database_template import new_database

ROOT = Path(__file__).parents[2]
COMPATGATE = [sys.executable, "-m", "compatgate"]


class Server:
    """A running gate, spoken to as a pipeline would."""

    def __init__(self, url: str, token: str, database: str, env: dict[str, str]) -> None:
        self.url, self.token, self.database, self.env = url, token, database, env

    def call(self, method: str, path: str, body=None, *, token: str | None = None):
        headers = {"Content-Type": "application/json", "X-Compatgate-Reason": "story"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        request = urllib.request.Request(
            f"{self.url}/api/v1/{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers=headers,
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def admin(self, method: str, path: str, body=None):
        status, answer = self.call(method, path, body, token=self.token)
        assert status < 300, answer
        return answer

    def gate(self, stack, **more):
        status, answer = self.call("POST", "gate", {"target": "prod", "stack": stack, **more})
        assert status == 200, answer
        return answer

    def check(self, *arguments: str):
        return subprocess.run(
            [*COMPATGATE, "check", "--server", self.url, *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=self.env,
        )


@contextmanager
def starting(folder: Path) -> Iterator[Callable[..., Server]]:
    """Starts gates on a database in the folder, and ends them."""
    processes = []
    environment = {k: v for k, v in os.environ.items() if not k.startswith("COMPATGATE_")}
    environment |= {"XDG_CACHE_HOME": own_cache(folder), "DOCKER_CONFIG": str(folder)}

    def start(*options: str, **variables: str) -> Server:
        environment.update(variables)
        database = new_database(folder / f"gate{len(processes)}.db")
        fixed = ["--port", "0", "--workers", "1", "--database", database]
        process = subprocess.Popen(
            [*COMPATGATE, "serve", *fixed, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment,
        )
        processes.append(process)
        assert process.stdout
        assert process.stderr
        first = process.stdout.readline()
        assert first.startswith("compatgate is serving on http://127.0.0.1:"), process.stderr.read()
        token = next(line for line in process.stderr if "cg_" in line).split()[-1]
        return Server(first.split()[-1], token, database, environment)

    yield start
    for process in processes:
        process.terminate()
        assert process.wait(20) == 0


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Start a gate on a database, with a cache and without credentials, of the test's own.

    Options are the command's; ``variables`` are of its environment.
    """
    with starting(tmp_path) as start:
        yield start


@pytest.fixture(scope="module")
def start_shared_server(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[..., Server]]:
    """As ``start_server``, for all tests of a module."""
    with starting(tmp_path_factory.mktemp("gate")) as start:
        yield start
