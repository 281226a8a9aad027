"""Bodies that the Kubernetes hook does not read, on a real connection: answered with their uid."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest

HOOK = "/hooks/kubernetes/validate?timeout=10s"
JSON = {"Content-Type": "application/json"}
UID = "705ab4f5-6393-11e8-b7cc-42010a800002"
HEAD = b'{"request":{"uid":"%s","object":"' % UID.encode()


def pieces() -> Iterator[bytes]:
    yield HEAD
    for _ in range(12):
        yield b"x" * 1_000_000
    yield b'"}}'


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_large_is_answered_and_not_cut_off(shared: Any, chunked: bool) -> None:
    connection = shared.connect()
    if chunked:
        headers = {**JSON, "Transfer-Encoding": "chunked"}
        connection.request("POST", HOOK, pieces(), headers, encode_chunked=True)
    else:
        connection.request("POST", HOOK, b"".join(pieces()), JSON)
    sent = connection.getresponse()
    response = json.loads(sent.read())["response"]
    assert sent.status == 413
    assert response["uid"] == UID
    assert response["status"]["reason"] == "RequestEntityTooLarge"
    assert shared.ask("GET", "/healthz").status == 200


def test_a_body_that_comes_too_slowly_is_answered_with_its_uid(serve: Any) -> None:
    server = serve(impatient=True)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.putrequest("POST", HOOK)
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Content-Length", "5000")
    connection.endheaders(HEAD)
    sent = connection.getresponse()
    assert sent.status == 400
    assert json.loads(sent.read())["response"]["uid"] == UID
