"""Asking a gate over HTTP."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest

from compatgate.cli.main import main
from compatgate.cli.remote import Server
from compatgate.errors import BadInput, Unavailable


class Gate(HTTPServer):
    """Answers every request with what it was told, and keeps what it was asked."""

    status = 200
    answer: bytes = b"{}"
    asked: list[tuple[str, str, dict[str, str], Any]]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Gate

    def do_GET(self) -> None:
        self.respond(None)

    def do_POST(self) -> None:
        self.respond(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def respond(self, body: Any) -> None:
        self.server.asked.append((self.command, self.path, dict(self.headers), body))
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(self.server.answer)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@pytest.fixture
def gate() -> Iterator[Gate]:
    server = Gate(("127.0.0.1", 0), Handler)
    server.asked = []
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("suffix", ["", "/", "/api/v1", "/api/v1/"])
def test_a_question_is_posted_with_its_token(gate: Gate, suffix: str) -> None:
    gate.answer = b'{"verdict": "pass"}'
    answer = Server(gate.url + suffix, "secret").post("gate", {"stack": {"cuda": "12.4"}})
    assert answer == {"verdict": "pass"}
    method, path, headers, body = gate.asked[0]
    assert (method, path) == ("POST", "/api/v1/gate")
    assert headers["Authorization"] == "Bearer secret"
    assert headers["Content-Type"] == "application/json"
    assert body == {"stack": {"cuda": "12.4"}}


def test_without_a_token_none_is_sent(gate: Gate) -> None:
    Server(gate.url).get("targets/x")
    assert "Authorization" not in gate.asked[0][2]


@pytest.mark.parametrize("status", [400, 403, 404, 422])
def test_a_refusal_carries_the_problems_detail(gate: Gate, status: int) -> None:
    gate.status, gate.answer = status, b'{"detail": "stack.cuda: is wrong"}'
    with pytest.raises(BadInput, match=r"stack\.cuda: is wrong"):
        Server(gate.url).post("gate", {})


def test_a_missing_token_is_asked_for(gate: Gate) -> None:
    gate.status = 401
    with pytest.raises(BadInput, match="COMPATGATE_TOKEN"):
        Server(gate.url).post("gate", {})


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503])
def test_an_answer_that_says_not_now_is_no_decision(gate: Gate, status: int) -> None:
    gate.status, gate.answer = status, b'{"detail": "busy"}'
    with pytest.raises(Unavailable, match=f"answered {status}: busy"):
        Server(gate.url).post("gate", {})


@pytest.mark.parametrize("answer", [b"<html>", b"[]", b""])
def test_an_answer_of_another_service_is_no_decision(gate: Gate, answer: bytes) -> None:
    gate.answer = answer
    with pytest.raises(Unavailable, match="is it a gate"):
        Server(gate.url).post("gate", {})


def test_a_refused_connection_is_no_decision() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(Unavailable, match="does not answer"):
        Server(f"http://127.0.0.1:{port}").post("gate", {})


def test_a_silent_server_is_no_decision() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(Unavailable, match="timed out"):
            Server(url, timeout_s=0.2).post("gate", {})


@pytest.mark.parametrize("url", ["gate.example", "ftp://gate", "file:///etc/passwd", "http://a b"])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(BadInput, match="is not a URL"):
        Server(url)


def test_no_decision_exits_with_3_and_fail_open_with_a_warning(
    gate: Gate, capsys: pytest.CaptureFixture[str]
) -> None:
    gate.status = 503
    asked = ["check", "--server", gate.url, "--target", "prod", "--stack", "cuda=12.4"]
    assert main(asked) == 3
    assert capsys.readouterr().err.startswith("error: ")
    assert main([*asked, "--fail-open"]) == 0
    assert "NO DECISION WAS MADE" in capsys.readouterr().err


def test_a_refusal_exits_with_2_even_with_fail_open(gate: Gate) -> None:
    gate.status, gate.answer = 404, b'{"detail": "there is no target"}'
    asked = ["check", "--server", gate.url, "--target", "prod", "--stack", "cuda=12.4"]
    assert main([*asked, "--fail-open"]) == 2


def test_the_environment_names_the_server_for_targets(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COMPATGATE_SERVER", gate.url)
    monkeypatch.setenv("COMPATGATE_TOKEN", "from-environment")
    gate.status = 503
    assert main(["check", "--target", "prod", "--stack", "cuda=12.4"]) == 3
    assert gate.asked[0][2]["Authorization"] == "Bearer from-environment"


def test_a_described_pool_needs_no_server_even_if_the_environment_names_one(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COMPATGATE_SERVER", gate.url)
    asked = ["--pool", "driver=580.95.05,gpu=L4", "--stack", "cuda=12.4,arch=sm_89"]
    assert main(["check", *asked]) == 0
    assert gate.asked == []


def test_the_pools_of_a_target_come_from_the_server(
    gate: Gate, capsys: pytest.CaptureFixture[str]
) -> None:
    pool = {"name": "a", "gpu": "A100-SXM4-80GB", "driver": "535.104.05", "count": 5}
    gate.answer = json.dumps({"spec": {"pools": [pool]}}).encode()
    assert main(["env", "--target", "prod", "--server", gate.url, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["CONDA_OVERRIDE_CUDA"] == "12.2"
    assert gate.asked[0][1] == "/api/v1/targets/prod"


def test_two_places_to_ask_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["check", "--server", "http://x", "--bundle", "b", "--target", "t", "--stack", "cuda=1"]
    assert main(asked) == 2
    assert "--server and --bundle exclude each other" in capsys.readouterr().err
