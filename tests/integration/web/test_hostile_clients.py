"""Clients that are slow, rude or broken get their error; the others their answer."""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from compatgate.service.cluster.schemas import REVIEW_EXAMPLES
from compatgate.web.asgi import MOST_AHEAD
from compatgate.web.server import BACKLOG, listen

STACK = {"cuda": "12.4", "arch": ["sm_80"]}
HEAD = b"POST /api/v1/gate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


def exchange(server: Any, sent: bytes, *, close: bool = True) -> bytes:
    """Send bytes, read until the server closes."""
    with socket.create_connection((server.host, server.port), timeout=20) as client:
        try:
            client.sendall(sent)
            if close:
                client.shutdown(socket.SHUT_WR)
            return b"".join(iter(partial(client.recv, 65536), b""))
        except OSError:  # closed or reset meanwhile
            return b""


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\r\n\r\n",
        b"\x00" * 1000,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 1000 + b"\r\n",
        b"GET / HTTP/1.1\r\nA: " + b"b" * 100_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET /%ff%fe%00 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /api/v1/targets?search=%ff HTTP/1.1\r\nHost: x\r\n\r\n",
        HEAD + b"Content-Length: -1\r\n\r\n{}",
        HEAD + b"Content-Length: x\r\n\r\n{}",
        HEAD + b"Content-Length: 99999999999999999999\r\n\r\n{}",
        HEAD + b"Content-Length: 100\r\n\r\n{}",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{}",
        HEAD + b"Transfer-Encoding: gzip\r\n\r\n{}",
        HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
        HEAD + b"\r\n",
    ],
    ids=lambda sent: repr(sent[:40]) + str(len(sent)),
)
def test_whatever_is_sent_is_the_senders_fault(shared: Any, sent: bytes) -> None:
    answer = exchange(shared, sent)
    status = answer.split(b" ", 2)[1] if answer else b"closed"
    assert status in (b"closed", b"200", b"400", b"404", b"411", b"413", b"414", b"415", b"431",
                      b"501", b"505"), answer  # fmt: skip
    assert shared.gate(STACK).status == 200
    assert not any("Traceback" in line for line in shared.log)


def test_a_body_beyond_the_limit_is_refused_before_it_is_read(shared: Any) -> None:
    sent = HEAD + b"Content-Length: 10000000000\r\n\r\n"
    answer = exchange(shared, sent, close=False)
    assert answer.startswith(b"HTTP/1.1 413")


def test_endless_chunks_are_cut_off_at_the_limit(shared: Any) -> None:
    chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
    answer = exchange(shared, HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 40)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 413")
    assert shared.gate(STACK).status == 200


def test_a_chunked_body_is_answered(shared: Any) -> None:
    body = b'{"target": "prod-a100", "stack": {"cuda": "12.4"}}'
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    head = HEAD + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = exchange(shared, head + chunks, close=False)
    assert answer.startswith(b"HTTP/1.1 200")


def test_requests_sent_together_are_answered_in_turn(shared: Any) -> None:
    body = b'{"target": "prod-a100", "stack": {"cuda": "12.4"}}'
    one = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
    answer = exchange(shared, one * 2, close=False)
    assert answer.count(b"HTTP/1.1 200") == 2
    assert answer.lower().count(b"connection: close") == 1, "a third one would not be read"


@pytest.mark.parametrize("path", ["/healthz", "/nothing"])
def test_a_connection_on_which_thousands_are_sent_ahead_is_closed(shared: Any, path: str) -> None:
    burst = f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode() * 6000
    with socket.create_connection((shared.host, shared.port), timeout=20) as client:
        with suppress(OSError):  # it is closed before everything is sent
            client.sendall(burst)
        answer = bytearray()
        with suppress(OSError):  # reset: the rest of the burst is not read
            while piece := client.recv(65536):
                answer += piece
    assert 1 <= answer.count(b"HTTP/1.1 ") <= MOST_AHEAD + 1
    assert shared.ask("GET", "/healthz").status == 200


def test_the_kernel_takes_little_ahead_of_the_server() -> None:
    """The server parses what has arrived at once; a flood of bursts costs it 1 ms each."""
    with (
        closing(listen("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as client,
    ):
        client.setblocking(False)
        client.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 60_000)
        with listener.accept()[0] as connection:
            time.sleep(0.1)
            assert len(connection.recv(65536)) < 6000


def test_few_connections_wait_to_be_accepted(serve: Any) -> None:
    """Each may have a burst, although its client has left; all are accepted together."""
    server = serve()
    group = server.process.pid
    clients = [socket.socket() for _ in range(3 * BACKLOG)]
    poll = select.poll()
    os.killpg(group, signal.SIGSTOP)
    try:
        for client in clients:
            client.setblocking(False)
            client.connect_ex((server.host, server.port))
            poll.register(client, select.POLLOUT)
        time.sleep(0.2)
        assert BACKLOG / 2 < len(poll.poll(0)) <= BACKLOG + 8
    finally:
        os.killpg(group, signal.SIGCONT)
        for client in clients:
            client.close()
    assert server.ask("GET", "/healthz").status == 200


def test_bursts_of_requests_hold_others_up_for_a_moment_and_take_little_memory(
    serve: Any,
) -> None:
    server = serve()
    before = _peak_mib(server)
    burst = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 60_000
    clients = [socket.create_connection((server.host, server.port)) for _ in range(16)]
    with ThreadPoolExecutor(len(clients)) as pool:
        sending = [pool.submit(client.sendall, burst) for client in clients]
        waits = []
        for _ in range(20):
            began = time.monotonic()
            assert server.ask("GET", "/healthz").status == 200
            waits.append(time.monotonic() - began)
            time.sleep(0.02)
        for client in clients:
            client.close()
        for one in sending:
            one.exception()
    assert max(waits) < 10
    assert _peak_mib(server) - before < 500  # 2,200 MiB where all that arrives is parsed


def _peak_mib(server: Any) -> int:
    """Return the most memory that a process of a server ever had."""
    process = Path(f"/proc/{server.process.pid}")
    workers = (process / "task" / process.name / "children").read_text().split()
    states = [Path(f"/proc/{one}/status").read_text() for one in workers]
    return max(int(re.findall(r"VmHWM:\s+(\d+)", state)[0]) for state in states) // 1024


def test_a_connection_stays_open_for_any_number_of_requests_in_turn(shared: Any) -> None:
    with socket.create_connection((shared.host, shared.port), timeout=20) as client:
        for _ in range(200):
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = b""
            while not answer.endswith(b"}"):
                answer += client.recv(65536)
            assert answer.startswith(b"HTTP/1.1 200")
            assert b"connection: close" not in answer.lower()


def test_a_few_slow_clients_stop_nobody(shared: Any) -> None:
    slow = [socket.create_connection((shared.host, shared.port)) for _ in range(8)]
    for client in slow:
        client.sendall(HEAD + b"Content-Length: 50\r\n\r\n{")
    began = time.monotonic()
    for _ in range(20):
        assert shared.gate(STACK).status == 200
    assert time.monotonic() - began < 5
    for client in slow:
        client.close()


def test_clients_that_are_too_slow_are_cut_off(serve: Any) -> None:
    server = serve("--threads", "2", impatient=True)
    slow = [socket.create_connection((server.host, server.port), timeout=20) for _ in range(2)]
    for client in slow:
        client.sendall(HEAD + b"Content-Length: 5000\r\n\r\n{")
    assert server.gate(STACK).status == 200
    for client in slow:
        assert b"not complete" in b"".join(iter(partial(client.recv, 65536), b""))
        client.close()


def test_many_silent_clients_stop_nobody(serve: Any) -> None:
    server = serve("--threads", "2")
    silent = [socket.create_connection((server.host, server.port)) for _ in range(200)]
    began = time.monotonic()
    assert server.ask("GET", "/healthz").status == 200
    assert server.gate(STACK).status == 200
    assert time.monotonic() - began < 2
    for client in silent:
        client.close()


def test_health_and_admission_answer_while_writes_wait_for_the_database(
    serve: Any, tmp_path: Path
) -> None:
    server = serve("--threads", "4")
    assert server.ask("GET", "/healthz").status == 200
    with closing(sqlite3.connect(tmp_path / "gate.db")) as lock, ThreadPoolExecutor(16) as pool:
        lock.execute("BEGIN IMMEDIATE")
        body = {"name": "t", "scopes": ["read"]}
        path, bearer = "/api/v1/tokens", server.bearer
        slow = [
            pool.submit(server.ask, "POST", path, {**body, "name": f"t{n}"}, bearer)
            for n in range(16)
        ]
        time.sleep(0.5)
        for _ in range(5):
            began = time.monotonic()
            assert server.ask("GET", "/healthz").status == 200
            assert time.monotonic() - began < 1
        review = REVIEW_EXAMPLES["pod"]
        dry = {**review, "request": {**review["request"], "dryRun": True}}
        began = time.monotonic()
        hook = "/hooks/kubernetes/validate?timeout=5s"
        assert server.ask("POST", hook, dry).json()["response"]["uid"]
        assert time.monotonic() - began < 2
        began = time.monotonic()
        assert server.ask("POST", hook, review).json()["response"]["uid"]
        assert time.monotonic() - began < 5, "within its own deadline, decided or not"
        began = time.monotonic()
        ready = server.ask("GET", "/readyz")
        assert (ready.status, "degraded" in ready.json()) == (200, True), "the spool records"
        assert time.monotonic() - began < 4
        assert not any(one.done() for one in slow)
        lock.rollback()
        assert {one.result().status for one in slow} == {201}
