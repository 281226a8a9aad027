"""One connection, many requests: whatever their order and shape, each gets its own answer."""

from __future__ import annotations

import json
import socket
from typing import Any

STACK = {"cuda": "12.4", "arch": ["sm_80"]}
GATE = "/api/v1/gate"
QUESTION = {"target": "prod-a100", "stack": STACK}
WRONG = {"target": "prod-a10", "stack": STACK}
VOLATILE = {"date", "x-request-id", "connection", "server"}


def comparable(answer: Any) -> tuple[int, dict[str, str], Any]:
    headers = {k.lower(): v for k, v in answer.headers.items() if k.lower() not in VOLATILE}
    body = {**answer.json(), "decided_at": ""}
    return answer.status, headers, body


def test_later_answers_are_like_the_first(shared: Any) -> None:
    for question in (QUESTION, WRONG, {"target": 1}):
        connection = shared.connect()
        answers = [shared.ask("POST", GATE, question, connection=connection) for _ in range(4)]
        assert all(comparable(a) == comparable(answers[0]) for a in answers)
        ids = {a.headers["X-Request-Id"] for a in answers}
        assert len(ids) == 4
        assert all("Date" in a.headers for a in answers)


def test_a_wrong_token_is_refused_on_every_request(shared: Any) -> None:
    connection = shared.connect()
    for headers, status in (({}, 200), ({"Authorization": "Bearer cg_no"}, 401), ({}, 200)) * 2:
        answer = shared.ask("POST", GATE, QUESTION, headers, connection)
        assert answer.status == status
        assert ("WWW-Authenticate" in answer.headers) is (status == 401)


def test_requests_of_every_shape_take_turns(shared: Any) -> None:
    connection = shared.connect()
    body = json.dumps(QUESTION).encode()
    for _ in range(3):
        for method, path, sent, headers, status in (
            ("POST", GATE, body, {}, 200),
            ("GET", "/healthz", None, {}, 200),
            ("POST", GATE, body, {}, 200),
            ("POST", GATE, body, {"Content-Type": "text/plain"}, 415),
            ("POST", GATE, b"", {}, 400),
            ("POST", f"{GATE}/preview", body, {}, 200),
            ("GET", GATE, None, {}, 405),
            ("POST", GATE, b" " * 200_000 + body, {}, 200),
            ("POST", GATE, body, {"X-Odd": "y"}, 200),
        ):
            answer = shared.ask(method, path, sent, headers, connection)
            assert answer.status == status, (method, path, headers)


def test_a_question_that_comes_in_pieces_is_answered(shared: Any) -> None:
    body = json.dumps(QUESTION).encode()
    head = f"POST {GATE} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    whole = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    with socket.create_connection((shared.host, shared.port), timeout=20) as client:
        for size in (len(whole), 1, 7, len(whole) - 1, len(whole)):
            for start in range(0, len(whole), size):
                client.sendall(whole[start : start + size])
            received = b""
            while b'"valid_until"' not in received:
                received += client.recv(65536)
            assert received.startswith(b"HTTP/1.1 200")


def test_decisions_on_one_connection_are_all_logged(server: Any) -> None:
    connection = server.connect()
    for number in range(30):
        question = {**QUESTION, "image": f"r/a:{number}"}
        assert server.ask("POST", GATE, question, connection=connection).status == 200
    logged = server.ask("GET", "/api/v1/decisions").json()["items"]
    assert [one["image"] for one in logged] == [f"r/a:{number}" for number in reversed(range(30))]
    figures = server.ask("GET", "/metrics").body.decode()
    assert "compatgate_decision_seconds_count 30.0" in figures
