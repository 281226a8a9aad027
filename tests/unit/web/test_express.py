"""The express reads requests of one plain shape, and leaves every other as it came."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatgate.web.express import End, Express, parse
from compatgate.web.problems import Answer

BODY = b'{"a": 1}'
PLAIN = {
    "Host": "gate",
    "User-Agent": "x/1 (y)",
    "Accept": "*/*",
    "Content-Type": "application/json",
    "Content-Length": "8",
}


def request(body: bytes = BODY, line: str = "POST /api/v1/gate HTTP/1.1", **others: Any) -> bytes:
    fields = {**PLAIN, **{name.replace("_", "-"): value for name, value in others.items()}}
    lines = [line, *(f"{name}: {value}" for name, value in fields.items() if value is not None)]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def test_a_plain_question_is_read() -> None:
    found = parse(request(Authorization="Bearer cg_x", Connection="keep-alive"), 100)
    assert found is not None
    assert found[0][b"authorization"] == b"Bearer cg_x"
    assert found[1] == BODY


@pytest.mark.parametrize(
    "data",
    [
        b"",
        request()[:-1],
        request()[:40],
        request() + request(),
        request(line="POST /api/v1/gate HTTP/1.0"),
        request(line="POST /api/v1/gate?a=b HTTP/1.1"),
        request(line="POST /api/v1/gate/preview HTTP/1.1"),
        request(line="GET /api/v1/gate HTTP/1.1"),
        request(line="post /api/v1/gate HTTP/1.1"),
        request(Host=None),
        request(Content_Type="text/plain"),
        request(Content_Type="application/json; charset=utf-8"),
        request(Content_Length=None),
        request(Content_Length="+8"),
        request(Content_Length="-8"),
        request(Content_Length="8, 8"),
        request(Content_Length="9"),
        request(Content_Length="7"),
        request(Content_Length="0x8"),
        request(Content_Length="²"),
        request(Content_Length="0" * 5000 + "8"),
        request(Transfer_Encoding="chunked"),
        request(Content_Encoding="gzip"),
        request(Expect="100-continue"),
        request(Upgrade="h2c"),
        request(Connection="close"),
        request(Cookie="a=b"),
        request(X_Forwarded_For="1.2.3.4"),
        request(Accept="a\0b"),
        request(Accept="a\tb"),
        request(Accept="a\rb"),
        request(Accept="a\nb: c"),
        request(Accept="\xff"),
        request(Accept=""),
        request().replace(b"Accept: ", b"Accept : "),
        request().replace(b"Accept: ", b" Accept: "),
        request().replace(b"Accept: */*", b"Accept"),
        request().replace(b"Accept: */*", b"Accept: */*\r\n folded"),
        request().replace(b"Accept: */*", b"Content-Length: 8"),
        request().replace(b"Accept: */*", b"content-length: 9"),
        request().replace(b"\r\n", b"\n"),
        request(b"x" * 200, Content_Length="200"),
    ],
    ids=lambda data: repr(data[:30]) + str(len(data)),
)
def test_what_is_not_plain_is_left_alone(data: bytes) -> None:
    assert parse(data, 100) is None


@given(st.binary(max_size=60), st.integers(0, 200), st.integers(0, 3))
def test_a_broken_request_is_never_misread(noise: bytes, at: int, removed: int) -> None:
    whole = request()
    data = whole[:at] + noise + whole[at + removed :]
    found = parse(data, 1000)
    if found is not None:
        fields, body = found
        assert int(fields[b"content-length"]) == len(body)
        head = data[: len(data) - len(body)]
        assert head.startswith(b"POST /api/v1/gate HTTP/1.1\r\n")
        assert head.endswith(b"\r\n\r\n")
        assert head.count(b"\r\n\r\n") == 1
        assert head.count(b"\n") == head.count(b"\r\n") == head.count(b"\r")
        assert set(head) <= {13, 10, *range(32, 127)}


class Lane:
    """Answers with what it was asked."""

    def reply(self, environ: dict[str, Any], read: Any) -> Answer:
        body = json.dumps({"got": read().decode(), "by": environ.get("HTTP_AUTHORIZATION")})
        length = ("Content-Length", str(len(body)))
        return Answer(200, [("Content-Type", "application/json"), length], body.encode())


def run(*sent: bytes) -> tuple[End, list[bytes], bytes]:
    """Serve what is sent; why it ended, what was left to others, what was answered."""
    client, server = socket.socketpair()
    left: list[bytes] = []
    requests = iter(sent)

    def is_ready() -> bool:
        data = next(requests, None)
        if data is None:
            return False
        client.sendall(data) if data else client.shutdown(socket.SHUT_WR)
        return True

    with client, server:
        end = Express(Lane(), 1000).serve(server, is_ready, left.append)  # type: ignore[arg-type]
        server.close()
        return end, left, b"".join(iter(lambda: client.recv(65536), b""))


def test_question_after_question_is_answered() -> None:
    end, left, answered = run(request(), request(Authorization="Bearer t"), request())
    assert (end, left) == (End.IDLE, [])
    assert answered.count(b"HTTP/1.1 200 OK\r\n") == 3
    assert answered.count(b'"by": "Bearer t"') == 1


def test_an_answer_is_framed_as_http_wants_it() -> None:
    _, _, answered = run(request(X_Request_Id="ci-1"))
    head, _, body = answered.partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    assert b"X-Request-Id: ci-1" in head
    assert b"X-Content-Type-Options: nosniff" in head
    assert head.count(b"\r\nDate: ") == 1


def test_what_is_not_plain_is_given_back_untouched() -> None:
    other = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    end, left, answered = run(request(), other)
    assert (end, left) == (End.OTHER, [other])
    assert answered.count(b"HTTP/1.1 200") == 1


def test_a_client_that_leaves_ends_it() -> None:
    assert run(request(), b"")[0] is End.CLOSED
