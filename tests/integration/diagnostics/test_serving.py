"""The diagnostics mounted in real applications on real servers, as docs/how-to/probe.md shows."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from wsgiref.validate import validator

import pytest

from compatgate import diagnostics

DOCS = Path(__file__).parents[3] / "docs" / "how-to" / "probe.md"


def example(framework: str) -> str:
    """The example of the documentation that imports a framework."""
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    (found,) = (block for block in blocks if f"from {framework} import" in block)
    return str(found)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., int]]:
    """Start a server with a module; gives the port."""
    running: list[subprocess.Popen[bytes]] = []

    def start(source: str, *command: str) -> int:
        (tmp_path / "service.py").write_text(source)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port: int = free.getsockname()[1]
        words = [word.format(port=port) for word in command]
        env = {**os.environ, "CUDA_VISIBLE_DEVICES": "0", "API_KEY": "hunter2"}
        running.append(subprocess.Popen([sys.executable, "-m", *words], cwd=tmp_path, env=env))
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return port
            time.sleep(0.1)
        raise AssertionError("the server did not start")

    yield start
    for process in running:
        process.terminate()
        process.wait(20)


def get(port: int, path: str, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, path)
    response = connection.getresponse()
    answer = response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
    connection.close()
    return answer


SERVERS = {
    "flask": ("gunicorn", "--workers", "2", "--threads", "4", "-b", "127.0.0.1:{port}"),
    "fastapi": ("uvicorn", "--host", "127.0.0.1", "--port", "{port}", "--log-level", "warning"),
}


@pytest.mark.parametrize("framework", list(SERVERS))
def test_the_documented_example_serves_the_report(
    framework: str, serve: Callable[..., int]
) -> None:
    port = serve(example(framework), *SERVERS[framework], "service:app")
    status, headers, body = get(port, "/internal/compatgate/")
    document = json.loads(body)
    assert (status, headers["content-type"]) == (200, "application/json")
    assert headers["cache-control"] == "no-store"
    assert document["compatgate"] == "probe/v1"
    assert document["process"]["environment"]["CUDA_VISIBLE_DEVICES"] == "0"
    assert b"hunter2" not in body
    assert get(port, "/")[0] == 200, "the service itself still answers"
    status, headers, body = get(port, "/internal/compatgate/", "HEAD")
    assert (status, body) == (200, b"")
    assert int(headers["content-length"]) > 100
    status, headers, body = get(port, "/internal/compatgate/", "POST")
    assert (status, headers["allow"]) == (405, "GET, HEAD")
    assert headers["content-type"] == "application/problem+json"
    assert get(port, "/internal/compatgate/etc/passwd")[0] == 404


def test_the_asgi_application_runs_by_itself(serve: Callable[..., int]) -> None:
    port = serve(
        "from compatgate.diagnostics import asgi_app as app\n", *SERVERS["fastapi"], "service:app"
    )
    assert get(port, "/")[0] == 200


def test_the_wsgi_application_keeps_to_its_specification() -> None:
    from wsgiref.util import setup_testing_defaults

    environ: dict[str, Any] = {"QUERY_STRING": "", "SCRIPT_NAME": "/diagnostics"}
    setup_testing_defaults(environ)
    environ["PATH_INFO"] = ""
    said: list[Any] = []
    answer = validator(diagnostics.wsgi_app)(environ, lambda *a: said.append(a) or (lambda _: None))
    body = b"".join(answer)
    answer.close()  # type: ignore[attr-defined]
    assert said[0][0] == "200 OK"
    assert dict(said[0][1])["Content-Length"] == str(len(body))


def test_the_asgi_application_follows_the_lifespan_and_closes_web_sockets() -> None:
    async def talk(scope: dict[str, Any], *incoming: dict[str, Any]) -> list[dict[str, Any]]:
        messages, sent = list(incoming), []

        async def receive() -> dict[str, Any]:
            return messages.pop(0)

        async def send(message: Any) -> None:
            sent.append(message)

        await diagnostics.asgi_app(scope, receive, send)
        return sent

    life = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    sent = asyncio.run(talk({"type": "lifespan"}, *life))
    assert [m["type"] for m in sent] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    sent = asyncio.run(talk({"type": "websocket"}, {"type": "websocket.connect"}))
    assert sent == [{"type": "websocket.close", "code": 1000}]
    mounted = {"type": "http", "method": "GET", "path": "/a/b/", "root_path": "/a/b"}
    assert asyncio.run(talk(mounted))[0]["status"] == 200
    stripped = {"type": "http", "method": "GET", "path": "/", "root_path": "/a/b"}
    assert asyncio.run(talk(stripped))[0]["status"] == 200


def test_a_report_that_fails_says_so_and_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> dict[str, Any]:
        raise RuntimeError("password=hunter2")

    monkeypatch.setattr(diagnostics, "report", fails)
    said: list[Any] = []
    body = b"".join(diagnostics.wsgi_app({}, lambda *a: said.append(a)))  # type: ignore[arg-type]
    assert said[0][0] == "503 Service Unavailable"
    assert b"RuntimeError" in body
    assert b"hunter2" not in body
