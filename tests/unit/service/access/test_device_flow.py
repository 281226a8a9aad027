"""The device flow against an issuer that answers what it is told to, over HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import pytest

from compatgate.errors import BadInput, Unauthorized, Unavailable
from compatgate.service.access.device_flow import DeviceCode, DeviceTokens, sign_in
from compatgate.service.access.schemas import SignInBody

CODE = {
    "device_code": "dc",
    "user_code": "WDJB-MJHT",
    "verification_uri": "https://id.example/device",
    "expires_in": 600,
    "interval": 3,
}
PENDING = (400, {"error": "authorization_pending"})
SLOW_DOWN = (400, {"error": "slow_down"})
TOKENS = (200, {"id_token": "an ID token", "access_token": "at", "token_type": "Bearer"})


class Scripted:
    """An issuer with a list of answers."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, Any]] = []
        self.asked: list[dict[str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                outer.asked.append({k: v for k, (v,) in parse_qs(body).items()})
                status, answer = outer.answers.pop(0)
                sent = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(sent)))
                self.end_headers()
                self.wfile.write(sent)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def sign_in(
        self, *answers: tuple[int, Any], **described: Any
    ) -> tuple[DeviceTokens, list[float]]:
        """Run the flow; the tokens, and the pauses between the questions."""
        self.answers = list(answers)
        pauses: list[float] = []
        shown: list[DeviceCode] = []
        body = {
            "name": "x",
            "issuer": self.url,
            "client_id": "cli",
            "device_authorization_endpoint": f"{self.url}/device",
            "token_endpoint": f"{self.url}/token",
            "scopes": ["openid", "groups"],
            "access_token": False,
            **described,
        }
        tokens = sign_in(SignInBody(**body), shown.append, sleep=pauses.append)
        assert [code.user_code for code in shown] == ["WDJB-MJHT"]
        return tokens, pauses


@pytest.fixture
def issuer() -> Iterator[Scripted]:
    made = Scripted()
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_the_issuer_is_asked_until_the_person_has_signed_in(issuer: Scripted) -> None:
    tokens, pauses = issuer.sign_in((200, CODE), PENDING, PENDING, TOKENS)
    assert tokens == DeviceTokens("an ID token", "at")
    assert pauses == [3, 3, 3]
    assert issuer.asked[0] == {"client_id": "cli", "scope": "openid groups"}
    assert issuer.asked[1] == {
        "grant_type": "urn:ietf:params:oauth:grant-type:device_code",
        "device_code": "dc",
        "client_id": "cli",
    }


def test_who_asks_too_often_slows_down(issuer: Scripted) -> None:
    broken = (503, b"<html>")
    _, pauses = issuer.sign_in((200, CODE), PENDING, SLOW_DOWN, SLOW_DOWN, broken, TOKENS)
    assert pauses == [3, 3, 8, 13, 26]


def test_without_an_interval_five_seconds_are_waited(issuer: Scripted) -> None:
    code = {name: value for name, value in CODE.items() if name != "interval"}
    assert issuer.sign_in((200, code), TOKENS)[1] == [5]
    assert issuer.sign_in((200, {**CODE, "interval": 0}), TOKENS)[1] == [1]


@pytest.mark.parametrize(
    ("answers", "error", "said"),
    [
        ([(200, CODE), (400, {"error": "access_denied"})], Unauthorized, "was refused"),
        ([(200, CODE), (400, {"error": "expired_token"})], Unauthorized, "in time"),
        (
            [(200, CODE), (400, {"error": "invalid_grant", "error_description": "gone"})],
            Unauthorized,
            "the issuer refused: gone",
        ),
        ([(200, {**CODE, "expires_in": 0})], Unauthorized, "the sign-in was not completed in time"),
        (
            [(200, CODE), (200, {"access_token": "at"})],
            Unavailable,
            "the issuer's answer cannot be used",
        ),
        ([(401, {"error": "invalid_client"})], Unauthorized, "refused: invalid_client"),
        ([(200, {"device_code": "x"})], Unavailable, "answer cannot be used"),
        ([(404, b"not found")], Unavailable, "status 404 and no JSON"),
        ([(200, {**CODE, "verification_uri": "javascript:1"})], Unavailable, "no sign-in page"),
    ],
)
def test_a_sign_in_that_fails_says_why(
    issuer: Scripted, answers: list[Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        issuer.sign_in(*answers)


def test_no_endpoint_without_tls_is_asked(issuer: Scripted) -> None:
    with pytest.raises(BadInput, match="token_endpoint must be https"):
        issuer.sign_in(token_endpoint="http://id.example/token")
    assert issuer.asked == []
